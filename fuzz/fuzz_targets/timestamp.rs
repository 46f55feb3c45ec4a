#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let target = onceward_fuzz::target("timestamp");
    target.expect("it is in the table")(data);
});
