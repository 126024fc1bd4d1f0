/* What PyTorch asks of CUDA before it hands work to it, answered as if there were GPUs.

   Loaded before PyTorch, whose own functions these replace. There are no GPUs until they are
   switched on, so that PyTorch is imported as on any machine without. Then there are as many as
   PyTorch has room for, as it asks for the streams of all of them; Python says how many to use. */

enum { MOST = 64 };

static signed char devices = 0;

void switch_on(void) { devices = MOST; }

/* c10::cuda::device_count() */
signed char _ZN3c104cuda12device_countEv(void) { return devices; }

/* c10::cuda::device_count_ensure_non_zero() */
signed char _ZN3c104cuda28device_count_ensure_non_zeroEv(void) { return devices; }

/* c10::cuda::hasPrimaryContext(signed char) */
_Bool _ZN3c104cuda17hasPrimaryContextEa(signed char device) { (void)device; return 0; }

/* Of libcuda.so.1, whose name this library has, so that PyTorch finds it loaded: GPU without work. */
int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
  (void)device;
  *flags = 0;
  *active = 0;
  return 0;
}
