// Put before the bindings to mlx-c: the two 16-bit float types of mlxc.h, as mlx-rs expects them. It takes
// float16_t apart by `.0`, because on a Mac bindgen makes it a tuple struct; bfloat16_t is bare bits.
#[repr(transparent)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct __BindgenFloat16(pub u16);
pub type float16_t = __BindgenFloat16;
pub type bfloat16_t = u16;
