//! See `rejoin_fuzz::envelope`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| rejoin_fuzz::envelope::run(data));
