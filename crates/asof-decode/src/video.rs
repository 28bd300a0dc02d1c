//! Packets of compressed video: their codec, and which of them are keyframes.

use std::fmt::Write as _;

/// A video codec that robots record, as named by `foxglove/CompressedVideo` and `ffmpeg_image_transport`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VideoCodec {
    /// H.264, in Annex B.
    H264,
    /// H.265, in Annex B.
    H265,
    /// VP9.
    Vp9,
    /// AV1, as low-overhead units.
    Av1,
}

impl VideoCodec {
    /// The codec by the name in a message: `h264`, `hevc`, `libx264`, `h264_nvenc;yuv420p`, `vp9`, `av1`.
    pub fn named(format: &str) -> Option<Self> {
        let name = format.split([';', '/', ',']).next()?.trim();
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        if has(&["264", "avc"]) {
            Some(VideoCodec::H264)
        } else if has(&["265", "hevc"]) {
            Some(VideoCodec::H265)
        } else if has(&["vp9"]) {
            Some(VideoCodec::Vp9)
        } else if has(&["av1"]) {
            Some(VideoCodec::Av1)
        } else {
            None
        }
    }

    /// Its usual name.
    pub const fn name(self) -> &'static str {
        match self {
            VideoCodec::H264 => "H.264",
            VideoCodec::H265 => "H.265",
            VideoCodec::Vp9 => "VP9",
            VideoCodec::Av1 => "AV1",
        }
    }

    /// Whether a decoder can start with this packet: a keyframe.
    pub fn is_key(self, packet: &[u8]) -> bool {
        match self {
            VideoCodec::H264 | VideoCodec::H265 => self.parameters(packet).is_some(),
            VideoCodec::Vp9 => vp9_profile(packet).is_some(),
            VideoCodec::Av1 => av1_sequence(packet).is_some(),
        }
    }

    /// Whether a packet holds an image, and not only parameters.
    pub fn has_picture(self, packet: &[u8]) -> bool {
        match self {
            VideoCodec::H264 => units(packet).any(|unit| (1..=5).contains(&(unit[0] & 0x1f))),
            VideoCodec::H265 => units(packet).any(|unit| (unit[0] >> 1) & 0x3f < 32),
            VideoCodec::Vp9 | VideoCodec::Av1 => !packet.is_empty(),
        }
    }

    /// The codec string for a browser's decoder, from a keyframe: `avc1.64001f`.
    pub fn parameter_text(self, packet: &[u8]) -> Option<String> {
        match self {
            VideoCodec::H264 => {
                let unit = self.parameters(packet)?;
                let [profile, constraints, level] = *unit.get(1..4)?.first_chunk::<3>()?;
                Some(format!("avc1.{profile:02x}{constraints:02x}{level:02x}"))
            }
            VideoCodec::H265 => h265_text(&unescaped(self.parameters(packet)?)),
            VideoCodec::Vp9 => {
                vp9_profile(packet).map(|profile| format!("vp09.{profile:02}.41.08"))
            }
            VideoCodec::Av1 => {
                let profile = av1_sequence(packet)?.first()? >> 5;
                Some(format!("av01.{profile}.08M.08"))
            }
        }
    }

    /// The sequence parameter set of a packet.
    pub(crate) fn parameters(self, packet: &[u8]) -> Option<&[u8]> {
        let is_set = |unit: &&[u8]| match self {
            VideoCodec::H264 => unit[0] & 0x1f == 7,
            _ => (unit[0] >> 1) & 0x3f == 33,
        };
        units(packet).find(is_set)
    }
}

/// The NAL units of a packet in Annex B, without their start codes; none of them is empty.
pub(crate) fn units(packet: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = packet;
    let mut has_begun = false;
    std::iter::from_fn(move || {
        loop {
            if rest.is_empty() {
                return None;
            }
            let at = rest.windows(3).position(|three| three == [0, 0, 1]);
            let unit = at.map_or(rest, |at| &rest[..at]);
            rest = at.map_or(&[], |at| &rest[at + 3..]);
            // Bytes before the first start code are not a unit.
            if std::mem::replace(&mut has_begun, true) && !unit.is_empty() {
                return Some(unit);
            }
        }
    })
}

/// A unit without its emulation prevention bytes.
pub(crate) fn unescaped(unit: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(unit.len());
    let mut zeros = 0;
    for &byte in unit {
        // Zeros before it do not count for the next.
        if byte == 3 && zeros >= 2 {
            zeros = 0;
            continue;
        }
        zeros = if byte == 0 { zeros + 1 } else { 0 };
        out.push(byte);
    }
    out
}

/// `hev1.1.6.L93.b0`, as in ISO/IEC 14496-15.
fn h265_text(unit: &[u8]) -> Option<String> {
    // Two bytes of the unit, one of the set, then profile, compatibility, constraints and level.
    let [first, compatible @ ..] = *unit.get(3..8)?.first_chunk::<5>()?;
    let constraints = unit.get(8..14)?;
    let level = *unit.get(14)?;
    let space = ["", "A", "B", "C"][usize::from(first >> 6)];
    let tier = if first & 0x20 == 0 { 'L' } else { 'H' };
    let compatible = u32::from_be_bytes(compatible).reverse_bits();
    let mut text = format!("hev1.{space}{}.{compatible:x}.{tier}{level}", first & 0x1f);
    let used = constraints.iter().rposition(|&byte| byte != 0);
    for byte in constraints.iter().take(used.map_or(0, |last| last + 1)) {
        let _ = write!(text, ".{byte:x}");
    }
    Some(text)
}

/// The profile of a VP9 key frame; `None` where it is not one.
fn vp9_profile(packet: &[u8]) -> Option<u8> {
    let first = *packet.first()?;
    let bit = |at: u8| (first >> (7 - at)) & 1;
    if first >> 6 != 0b10 {
        return None;
    }
    let profile = bit(2) | (bit(3) << 1);
    // Profile three has an extra bit before the common ones.
    let by = u8::from(profile == 3);
    let (shows_another, is_not_key) = (bit(4 + by), bit(5 + by));
    (shows_another == 0 && is_not_key == 0).then_some(profile)
}

/// The sequence header of an AV1 packet.
fn av1_sequence(packet: &[u8]) -> Option<&[u8]> {
    let mut rest = packet;
    while let Some((&head, after)) = rest.split_first() {
        let (kind, has_extension, has_size) = ((head >> 3) & 0xf, head & 4 != 0, head & 2 != 0);
        let after = after.get(usize::from(has_extension)..)?;
        let (size, used) = if has_size {
            leb128(after)?
        } else {
            (after.len(), 0)
        };
        let body = after.get(used..)?.get(..size)?;
        if kind == 1 {
            return Some(body);
        }
        rest = &after[used + size..];
    }
    None
}

/// A LEB128 number, and its length in bytes.
fn leb128(bytes: &[u8]) -> Option<(usize, usize)> {
    let mut value = 0_usize;
    for (at, byte) in bytes.iter().take(5).enumerate() {
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn senders_name_codecs_in_many_ways() {
        for (format, wanted) in [
            ("h264", Some(VideoCodec::H264)),
            ("libx264", Some(VideoCodec::H264)),
            ("h264_nvenc;yuv420p;bgr8;bgr8", Some(VideoCodec::H264)),
            ("hevc", Some(VideoCodec::H265)),
            ("h265", Some(VideoCodec::H265)),
            ("vp9", Some(VideoCodec::Vp9)),
            ("av1", Some(VideoCodec::Av1)),
            ("jpeg", None),
            ("", None),
        ] {
            assert_eq!(VideoCodec::named(format), wanted, "{format}");
        }
    }

    #[test]
    fn a_decoder_starts_where_the_parameters_are() {
        let set = [
            0, 0, 0, 1, 0x67, 0x64, 0x00, 0x1f, 0xac, 0, 0, 1, 0x68, 0xee,
        ];
        let picture = [0, 0, 0, 1, 0x65, 0x88];
        let later = [0, 0, 1, 0x41, 0x9a];
        let h264 = VideoCodec::H264;
        let key = [&set[..], &picture].concat();
        assert!(h264.is_key(&key) && h264.has_picture(&key));
        assert!(h264.is_key(&set) && !h264.has_picture(&set));
        assert!(!h264.is_key(&later) && h264.has_picture(&later));
        assert_eq!(h264.parameter_text(&key).as_deref(), Some("avc1.64001f"));
        assert_eq!(h264.parameter_text(&later), None);
    }

    #[test]
    fn h265_says_its_profile_and_level() {
        // The main profile at level 3.1, as x265 writes it, its zeros escaped.
        let set = [
            0, 0, 0, 1, 0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0x90, 0, 0, 3, 0, 0, 3, 0, 0x5d, 0xa0,
        ];
        let text = VideoCodec::H265.parameter_text(&set);
        assert_eq!(text.as_deref(), Some("hev1.1.6.L93.90"));
        assert!(VideoCodec::H265.has_picture(&[0, 0, 1, 0x26, 1, 2]));
        assert!(!VideoCodec::H265.has_picture(&set));
    }

    #[test]
    fn key_frames_of_the_others_are_known_too() {
        assert!(VideoCodec::Vp9.is_key(&[0x82, 0x49, 0x83, 0x42]));
        assert!(!VideoCodec::Vp9.is_key(&[0x86, 0]));
        let sequence = [0x12, 0, 0x0a, 2, 0x00, 0x10, 0x32, 1, 0];
        assert!(VideoCodec::Av1.is_key(&sequence));
        assert!(!VideoCodec::Av1.is_key(&[0x12, 0, 0x32, 1, 0]));
        assert_eq!(
            VideoCodec::Av1.parameter_text(&sequence).as_deref(),
            Some("av01.0.08M.08")
        );
    }

    #[test]
    fn nothing_that_is_cut_off_or_odd_breaks_it() {
        let whole = [0, 0, 0, 1, 0x42, 1, 1, 1, 0x60, 0, 0, 3, 0, 0, 0, 1];
        let codecs = [
            VideoCodec::H264,
            VideoCodec::H265,
            VideoCodec::Vp9,
            VideoCodec::Av1,
        ];
        for end in 0..=whole.len() {
            for codec in codecs {
                let packet = &whole[..end];
                let _ = (codec.is_key(packet), codec.has_picture(packet));
                let _ = codec.parameter_text(packet);
            }
        }
        for byte in 0..=255 {
            for codec in codecs {
                let _ = codec.parameter_text(&[byte, 0xff, 0xff, 0xff, 0xff, 0xff]);
            }
        }
    }
}
