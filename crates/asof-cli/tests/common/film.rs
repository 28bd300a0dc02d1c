//! A small video, and what lies where in an MP4 file.

/// Six pictures of 16 by 16 as x264 encodes them; a decoder can start at the first and the fourth.
pub const VIDEO: [&str; 6] = [
    "000000016742c00ada7a1000000300100000030148f1226a0000000168ce0fc8000000016588843a2628000902e0",
    "00000001419a202ebc645000104a8a000209514000412a2800082545000104a8a000209514000412a2800082545000104a8a000209514000412a2800082545000104a8a000209514000412a280008256",
    "00000001419a402ebc645000104e8a000209d14000413a2800082745000104e8a000209d14000413a2800082745000104e8a000209d14000413a2800082745000104e8a000209d14000413a280008276",
    "000000016742c00ada7a1000000300100000030148f1226a0000000168ce0fc80000000165888202a898a000208f80",
    "00000001419a202ea2714000447b",
    "00000001419a402ebc645000104e8a000209d14000413a2800082745000104e8a000209d14000413a2800082745000104e8a000209d14000413a2800082745000104e8a000209d14000413a280008276",
];

/// The bytes of a packet that is written in hexadecimal digits.
pub fn bytes_of(packet: &str) -> Vec<u8> {
    let digits = packet.as_bytes().chunks(2);
    let byte = |two: &[u8]| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16);
    digits.map(|two| byte(two).expect("hex")).collect()
}

/// The contents of the first box of a name, found by walking into those before it.
pub fn find<'a>(file: &'a [u8], path: &[&str]) -> &'a [u8] {
    let Some((name, rest)) = path.split_first() else {
        return file;
    };
    let mut at = 0;
    while at + 8 <= file.len() {
        let word =
            |at: usize| u32::from_be_bytes(file[at..at + 4].try_into().expect("four")) as usize;
        let (size, head) = match word(at) {
            1 => (word(at + 12), 16),
            size => (size, 8),
        };
        if &file[at + 4..at + 8] == name.as_bytes() {
            return find(&file[at + head..at + size], rest);
        }
        at += size;
    }
    panic!("no box {name}")
}
