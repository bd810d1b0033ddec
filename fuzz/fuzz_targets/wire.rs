//! Messages between caller, keeper and init, in all directions: what can be read can be written and read again.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox_cell::fuzz::wire(bytes));
