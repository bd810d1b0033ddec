//! Messages between caller, keeper and init, in all directions: every parsed message round-trips.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox_cell::fuzz::wire(bytes));
