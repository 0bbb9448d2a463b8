// Put before the bindings to mlx-c: the two 16-bit float types of mlxc.h, as mlx-rs expects them.
// On Arm, bindgen itself makes float16_t a tuple struct, and mlx-rs takes it apart by `.0`; bfloat16_t is bare bits.
#[repr(transparent)]
#[derive(Debug, Default, Copy, Clone, PartialEq)]
pub struct __BindgenFloat16(pub u16);
pub type float16_t = __BindgenFloat16;
pub type bfloat16_t = u16;
