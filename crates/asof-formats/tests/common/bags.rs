//! Writes ROS 1 bags for tests, with whatever is to be odd about them.

use std::io::Write;

/// What a bag is made of.
pub struct BagMaker {
    bytes: Vec<u8>,
    chunks: Vec<ChunkInfo>,
    connections: Vec<(u32, String, Vec<u8>)>,
    compression: &'static str,
}

struct ChunkInfo {
    offset: u64,
    start: (u32, u32),
    end: (u32, u32),
    counts: Vec<(u32, u32)>,
}

/// A message to be written: connection, time in seconds and nanoseconds, payload.
pub type Said<'a> = (u32, (u32, u32), &'a [u8]);

fn field(name: &str, value: &[u8]) -> Vec<u8> {
    let mut field = ((name.len() + 1 + value.len()) as u32)
        .to_le_bytes()
        .to_vec();
    field.extend_from_slice(name.as_bytes());
    field.push(b'=');
    field.extend_from_slice(value);
    field
}

fn record(fields: &[Vec<u8>], data: &[u8]) -> Vec<u8> {
    let header = fields.concat();
    let mut record = (header.len() as u32).to_le_bytes().to_vec();
    record.extend(header);
    record.extend((data.len() as u32).to_le_bytes());
    record.extend_from_slice(data);
    record
}

fn time(at: (u32, u32)) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&at.0.to_le_bytes());
    bytes[4..].copy_from_slice(&at.1.to_le_bytes());
    bytes
}

fn bag_header(index: u64, connections: u32, chunks: u32, encryptor: &str) -> Vec<u8> {
    let mut fields = vec![
        field("op", &[3]),
        field("index_pos", &index.to_le_bytes()),
        field("conn_count", &connections.to_le_bytes()),
        field("chunk_count", &chunks.to_le_bytes()),
    ];
    if !encryptor.is_empty() {
        fields.push(field("encryptor", encryptor.as_bytes()));
    }
    let padding = vec![b' '; 200];
    record(&fields, &padding)
}

/// A bag with nothing in it but a header that names an encryptor.
pub fn encrypted() -> Vec<u8> {
    [
        b"#ROSBAG V2.0\n".to_vec(),
        bag_header(500, 0, 0, "rosbag/AesCbcEncryptor"),
    ]
    .concat()
}

impl BagMaker {
    pub fn new(compression: &'static str) -> Self {
        BagMaker {
            bytes: [b"#ROSBAG V2.0\n".to_vec(), bag_header(0, 0, 0, "")].concat(),
            chunks: Vec::new(),
            connections: Vec::new(),
            compression,
        }
    }

    /// Adds a connection; it is written into the next chunk and into the index.
    pub fn connect(
        &mut self,
        id: u32,
        topic: &str,
        kind: &str,
        definition: &str,
        is_latching: bool,
    ) {
        let mut data = [
            field("topic", topic.as_bytes()),
            field("type", kind.as_bytes()),
            field("md5sum", b"0123456789abcdef0123456789abcdef"),
            field("message_definition", definition.as_bytes()),
        ]
        .concat();
        if is_latching {
            data.extend(field("latching", b"1"));
        }
        self.connections.push((id, topic.to_owned(), data));
    }

    fn connection_record(&self, index: usize) -> Vec<u8> {
        let (id, topic, data) = &self.connections[index];
        record(
            &[
                field("op", &[7]),
                field("conn", &id.to_le_bytes()),
                field("topic", topic.as_bytes()),
            ],
            data,
        )
    }

    /// The records of a chunk, and the index of each connection in it.
    fn contents(&self, messages: &[Said<'_>]) -> (Vec<u8>, Vec<(u32, Vec<u8>)>) {
        let mut contents = Vec::new();
        if self.chunks.is_empty() {
            for index in 0..self.connections.len() {
                contents.extend(self.connection_record(index));
            }
        }
        let mut indexes: Vec<(u32, Vec<u8>)> = Vec::new();
        for &(conn, at, payload) in messages {
            let place = contents.len() as u32;
            let entry = [&time(at)[..], &place.to_le_bytes()].concat();
            match indexes.iter_mut().find(|(id, _)| *id == conn) {
                Some((_, entries)) => entries.extend(entry),
                None => indexes.push((conn, entry)),
            }
            contents.extend(record(
                &[
                    field("op", &[2]),
                    field("conn", &conn.to_le_bytes()),
                    field("time", &time(at)),
                ],
                payload,
            ));
        }
        (contents, indexes)
    }

    fn compress(&self, contents: &[u8]) -> Vec<u8> {
        match self.compression {
            "bz2" => {
                let mut encoder =
                    bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
                encoder.write_all(contents).expect("compresses");
                encoder.finish().expect("compresses")
            }
            "lz4" => {
                let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
                encoder.write_all(contents).expect("compresses");
                encoder.finish().expect("compresses")
            }
            _ => contents.to_vec(),
        }
    }

    /// Adds a chunk with its index records; returns where it starts.
    pub fn chunk(&mut self, messages: &[Said<'_>]) -> u64 {
        let offset = self.bytes.len() as u64;
        let (contents, indexes) = self.contents(messages);
        let data = self.compress(&contents);
        self.bytes.extend(record(
            &[
                field("op", &[5]),
                field("compression", self.compression.as_bytes()),
                field("size", &(contents.len() as u32).to_le_bytes()),
            ],
            &data,
        ));
        let mut counts = Vec::new();
        for (conn, entries) in indexes {
            let count = (entries.len() / 12) as u32;
            counts.push((conn, count));
            self.bytes.extend(record(
                &[
                    field("op", &[4]),
                    field("ver", &1u32.to_le_bytes()),
                    field("conn", &conn.to_le_bytes()),
                    field("count", &count.to_le_bytes()),
                ],
                &entries,
            ));
        }
        let times = messages.iter().map(|&(_, at, _)| at);
        self.chunks.push(ChunkInfo {
            offset,
            start: times.clone().min().unwrap_or_default(),
            end: times.max().unwrap_or_default(),
            counts,
        });
        offset
    }

    /// A chunk as a recorder leaves it when it is killed: its lengths are zero, its data is there.
    pub fn open_chunk(&mut self, messages: &[Said<'_>]) {
        let (contents, _) = self.contents(messages);
        let data = self.compress(&contents);
        self.bytes.extend(record(
            &[
                field("op", &[5]),
                field("compression", self.compression.as_bytes()),
                field("size", &0u32.to_le_bytes()),
            ],
            &[],
        ));
        self.bytes.extend(data);
    }

    /// The bytes so far, as a killed recorder leaves them.
    pub fn unfinished(self) -> Vec<u8> {
        self.bytes
    }

    /// The bytes with an index behind them.
    pub fn finish(mut self) -> Vec<u8> {
        let index = self.bytes.len() as u64;
        for connection in 0..self.connections.len() {
            let record = self.connection_record(connection);
            self.bytes.extend(record);
        }
        for chunk in &self.chunks {
            let mut counts = Vec::new();
            for (conn, count) in &chunk.counts {
                counts.extend(conn.to_le_bytes());
                counts.extend(count.to_le_bytes());
            }
            self.bytes.extend(record(
                &[
                    field("op", &[6]),
                    field("ver", &1u32.to_le_bytes()),
                    field("chunk_pos", &chunk.offset.to_le_bytes()),
                    field("start_time", &time(chunk.start)),
                    field("end_time", &time(chunk.end)),
                    field("count", &(chunk.counts.len() as u32).to_le_bytes()),
                ],
                &counts,
            ));
        }
        let header = bag_header(
            index,
            self.connections.len() as u32,
            self.chunks.len() as u32,
            "",
        );
        self.bytes[13..13 + header.len()].copy_from_slice(&header);
        self.bytes
    }
}
