//! Writes PX4 logs for tests.

/// What a log is made of.
pub struct UlogMaker {
    pub bytes: Vec<u8>,
}

pub const SYNC: [u8; 8] = [0x2f, 0x73, 0x13, 0x20, 0x25, 0x0c, 0xbb, 0x12];

impl UlogMaker {
    /// A log that started at this many microseconds.
    pub fn new(start: u64) -> Self {
        let mut bytes = b"ULog\x01\x12\x35\x01".to_vec();
        bytes.extend(start.to_le_bytes());
        let mut maker = UlogMaker { bytes };
        maker.put(b'B', &[0; 40]);
        maker
    }

    pub fn put(&mut self, kind: u8, body: &[u8]) -> &mut Self {
        self.bytes.extend((body.len() as u16).to_le_bytes());
        self.bytes.push(kind);
        self.bytes.extend(body);
        self
    }

    pub fn format(&mut self, text: &str) -> &mut Self {
        self.put(b'F', text.as_bytes())
    }

    pub fn pair(&mut self, kind: u8, front: &[u8], key: &str, value: &[u8]) -> &mut Self {
        let body = [front, &[key.len() as u8], key.as_bytes(), value].concat();
        self.put(kind, &body)
    }

    pub fn subscribe(&mut self, id: u16, instance: u8, name: &str) -> &mut Self {
        let body = [&[instance][..], &id.to_le_bytes(), name.as_bytes()].concat();
        self.put(b'A', &body)
    }

    pub fn data(&mut self, id: u16, time: u64, rest: &[u8]) -> &mut Self {
        let body = [&id.to_le_bytes()[..], &time.to_le_bytes(), rest].concat();
        self.put(b'D', &body)
    }

    pub fn logged(&mut self, time: u64, tag: Option<u16>, text: &str) -> &mut Self {
        let (kind, tag) = tag.map_or((b'L', Vec::new()), |tag| (b'C', tag.to_le_bytes().to_vec()));
        let body = [b"4", &tag[..], &time.to_le_bytes(), text.as_bytes()].concat();
        self.put(kind, &body)
    }

    /// Says in the head of the log that more was appended from here on.
    pub fn append_here(&mut self) -> &mut Self {
        let at = self.bytes.len() as u64;
        let flags = 16 + 3;
        self.bytes[flags + 8] = 1;
        self.bytes[flags + 16..flags + 24].copy_from_slice(&at.to_le_bytes());
        self
    }
}

/// A short flight: two accelerometers, a battery, parameters, words and a dropout.
pub fn flight(samples: u64) -> UlogMaker {
    let mut maker = UlogMaker::new(1_000_000);
    maker
        .format("sensor_accel:uint64_t timestamp;float x;uint8_t clipped;uint8_t[3] _padding0;")
        .format("cell:uint16_t millivolts;int8_t warmth;")
        .format("battery:uint64_t timestamp;cell[2] cells;bool charging;char[8] name;")
        .pair(b'I', &[], "char[5] sys_name", b"PX4x5")
        .pair(b'I', &[], "uint32_t ver_sw_release", &7u32.to_le_bytes())
        .pair(b'M', &[0], "char[3] boot", b"abc")
        .pair(b'M', &[1], "char[3] boot", b"def")
        .pair(b'M', &[0], "char[3] boot", b"ghi")
        .pair(b'P', &[], "int32_t SYS_AUTOSTART", &4001i32.to_le_bytes())
        .pair(b'P', &[], "float MC_ROLL_P", &6.5f32.to_le_bytes())
        .pair(b'Q', &[1], "int32_t SYS_AUTOSTART", &0i32.to_le_bytes())
        .subscribe(3, 0, "sensor_accel")
        .subscribe(4, 1, "sensor_accel")
        .subscribe(5, 0, "battery");
    for sample in 0..samples {
        let time = 1_000_000 + sample * 1000;
        let accel = [&(sample as f32).to_le_bytes()[..], &[7]].concat();
        maker.data(3, time, &accel).data(4, time + 5, &accel);
        if sample % 10 == 0 {
            let cells = [b"\x10\x0e\x15\x11\x0e\xfe\x01", &b"lipo\0\0\0\0"[..]].concat();
            maker.data(5, time + 7, &cells).put(b'S', &SYNC);
        }
        if sample == 20 {
            maker
                .pair(b'P', &[], "float MC_ROLL_P", &7.5f32.to_le_bytes())
                .put(b'O', &250u16.to_le_bytes())
                .logged(time, None, "takeoff")
                .logged(time, Some(9), "tagged");
        }
    }
    maker
}
