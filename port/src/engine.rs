//! MLX itself: its errors in this project's words, its version, its device, and what else changes numbers.
//!
//! Inputs: arrays, exceptions. Outputs: [`spec::Error::Engine`], host values, [`spec::SideInfo`].
//! Absent on purpose: any arithmetic of the model.

use mlx_rs::ArrayElement;
use mlx_rs::{Array, Device, DeviceType, Dtype};
use spec::{Error, Precision, SideInfo};

/// What an operation of MLX returns. MLX is lazy: most errors come when an array is evaluated.
pub type Op<T = Array> = mlx_rs::error::Result<T>;

/// Says what was being done when MLX failed.
pub trait Doing<T> {
    /// Turns an exception into [`Error::Engine`]; `what` is a verb phrase ("run layer 3").
    fn doing(self, what: impl Into<String>) -> spec::Result<T>;
}

impl<T> Doing<T> for Op<T> {
    fn doing(self, what: impl Into<String>) -> spec::Result<T> {
        let fail = |e: mlx_rs::error::Exception| Error::Engine {
            engine: "MLX",
            doing: what.into(),
            message: e.what().to_string(),
        };
        self.map_err(fail)
    }
}

/// A length as MLX takes it. Panics above `i32::MAX`, which no shape of MLX can hold.
pub fn dim(length: usize) -> i32 {
    i32::try_from(length).expect("MLX counts lengths in 32 bits")
}

/// One axis of an array as a `usize`.
pub fn length(array: &Array, axis: i32) -> usize {
    usize::try_from(array.dim(axis)).expect("lengths are not negative")
}

/// All values in row-major order, evaluated and copied; `T` must be the array's own dtype.
pub fn values<T: ArrayElement + Clone>(array: &Array) -> Op<Vec<T>> {
    let contiguous = array.contiguous()?;
    match contiguous.try_as_slice::<T>() {
        Ok(slice) => Ok(slice.to_vec()),
        Err(e) => Err(mlx_rs::error::Exception::custom(e.to_string())),
    }
}

/// The dtype of the residual stream and of the weights that multiply it.
pub fn working_dtype(precision: Precision) -> Dtype {
    match precision {
        Precision::F32 => Dtype::Float32,
        Precision::Bf16 => Dtype::Bfloat16,
    }
}

/// Whether MLX computes on a GPU by default. Errors: none known; MLX always has a default device.
pub fn on_gpu() -> Op<bool> {
    Ok(matches!(Device::try_default()?.get_type()?, DeviceType::Gpu))
}

/// Bytes of all live arrays of this process, as MLX counts them; those it keeps for later use are not.
pub fn active_bytes() -> Op<usize> {
    mlx_rs::memory::active_memory()
}

/// Who computes, and what else changes its numbers: BLAS, threads, environment.
pub fn describe(precision: Precision) -> SideInfo {
    let mut notes = vec![("blas".into(), blas())];
    let threads = std::thread::available_parallelism().map_or("unknown".into(), |n| n.to_string());
    notes.push(("threads_available".into(), threads));
    let variables = ["MLX_ENABLE_TF32", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"];
    for variable in variables {
        let value = std::env::var(variable).unwrap_or_else(|_| "not set".into());
        notes.push((variable.into(), value));
    }
    SideInfo {
        side: "port".into(),
        engine: format!("MLX {} (mlx-rs 0.33.0)", version()),
        device: if on_gpu().unwrap_or(false) { "metal".into() } else { "cpu".into() },
        precision,
        notes,
    }
}

/// MLX's version as the linked library says it.
pub fn version() -> String {
    // SAFETY: mlx-rs has no call for it. `mlx_version` fills a string that this function owns; it is copied
    // before it is freed.
    #[allow(unsafe_code)]
    unsafe {
        let mut text = mlx_sys::mlx_string_new();
        let status = mlx_sys::mlx_version(&raw mut text);
        let data = mlx_sys::mlx_string_data(text);
        let version = if status == 0 && !data.is_null() {
            std::ffi::CStr::from_ptr(data).to_string_lossy().into_owned()
        } else {
            "unknown".into()
        };
        mlx_sys::mlx_string_free(text);
        version
    }
}

/// The BLAS behind MLX's f32 matrix products on the CPU.
///
/// On Linux the library that MLX brings is a plain one (2 GFLOP/s on two cores). A program that needs
/// OpenBLAS itself has it earlier in the order in which symbols are looked up, so that MLX's calls of
/// `cblas_sgemm` reach OpenBLAS. The linker drops a library that nothing refers to; the question for its
/// configuration here is what keeps it, and loading a [`crate::Port`] asks it. To verify: `readelf -d` of
/// the program lists `libopenblas` before or beside `libmlx`, and `LD_DEBUG=bindings` binds libmlx's
/// `cblas_sgemm` to it.
///
/// It is told to use one thread: how it cuts a product among several decides the last bits, and no number of
/// this port may depend on how many cores there are.
#[cfg(target_os = "linux")]
fn blas() -> String {
    use ndarray_linalg as _;
    #[allow(unsafe_code)]
    unsafe extern "C" {
        fn openblas_get_config() -> *const std::ffi::c_char;
        fn openblas_set_num_threads(threads: std::ffi::c_int);
    }
    // SAFETY: the first function takes a number; the second takes nothing and returns a string that lives as
    // long as the library.
    #[allow(unsafe_code)]
    unsafe {
        openblas_set_num_threads(1);
        std::ffi::CStr::from_ptr(openblas_get_config()).to_string_lossy().into_owned() + ", one thread"
    }
}

/// The BLAS behind MLX's f32 matrix products on the CPU.
#[cfg(not(target_os = "linux"))]
fn blas() -> String {
    "Accelerate".into()
}
