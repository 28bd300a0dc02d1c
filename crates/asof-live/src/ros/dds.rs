//! How ROS 2 maps to DDS: topic names, type hashes, and which node owns which writer.

use std::collections::HashMap;

/// The topic that announces the readers and writers of each node.
pub const DISCOVERY_TOPIC: &str = "ros_discovery_info";
/// The type of its messages, in the spelling of DDS.
pub const DISCOVERY_TYPE: &str = "rmw_dds_common::msg::dds_::ParticipantEntitiesInfo_";

/// The identifier of a DDS reader or writer.
pub type Guid = [u8; 16];

/// The ROS topic of a DDS topic: `rt/tf_static` is `/tf_static`. A topic of a program without ROS keeps its name.
/// `None` for services, the service parts of actions, parameters and the internal topics of ROS.
///
/// ```
/// use asof_live::ros::ros_topic_name;
///
/// assert_eq!(ros_topic_name("rt/camera/image").as_deref(), Some("/camera/image"));
/// assert_eq!(ros_topic_name("rq/camera/get_parametersRequest"), None);
/// ```
pub fn ros_topic_name(dds_topic: &str) -> Option<String> {
    if let Some(name) = dds_topic.strip_prefix("rt/") {
        return (!name.is_empty()).then(|| format!("/{name}"));
    }
    let is_own = ["rq/", "rr/", "rs/", "rp/", "ra/"]
        .iter()
        .any(|prefix| dds_topic.starts_with(prefix));
    let is_hidden = is_own || dds_topic == DISCOVERY_TOPIC || dds_topic.is_empty();
    (!is_hidden).then(|| dds_topic.to_owned())
}

/// The type hash that a writer announces in its user data: `typehash=RIHS01_…;`. Writers before ROS 2 Iron do not have
/// one.
///
/// ```
/// use asof_live::ros::announced_type_hash;
///
/// assert_eq!(announced_type_hash(b"typehash=RIHS01_5c6a;").as_deref(), Some("RIHS01_5c6a"));
/// // As discovery has it: a list of bytes, with its length before it and padding after it.
/// let listed = b"\x15\0\0\0typehash=RIHS01_5c6a;\0\0\0";
/// assert_eq!(announced_type_hash(listed).as_deref(), Some("RIHS01_5c6a"));
/// assert_eq!(announced_type_hash(b""), None);
/// ```
pub fn announced_type_hash(user_data: &[u8]) -> Option<String> {
    const NAME: &[u8] = b"typehash=";
    let user_data = listed(user_data).unwrap_or(user_data);
    let mut parts = user_data.split(|byte| *byte == b';');
    let hash = parts.find_map(|part| part.trim_ascii().strip_prefix(NAME))?;
    let hash = std::str::from_utf8(hash).ok()?;
    (!hash.is_empty()).then(|| hash.to_owned())
}

/// The bytes of a length-prefixed list, in either byte order, with at most padding after it.
fn listed(parameter: &[u8]) -> Option<&[u8]> {
    let (length, bytes) = parameter.split_first_chunk()?;
    let lengths = [u32::from_le_bytes(*length), u32::from_be_bytes(*length)];
    let mut lengths = lengths.into_iter().map(|length| length as usize);
    let length = lengths.find(|length| {
        bytes
            .len()
            .checked_sub(*length)
            .is_some_and(|rest| rest < 4)
    })?;
    bytes.get(..length)
}

/// A message of `ros_discovery_info`: the nodes of a process, by their readers and writers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParticipantEntities {
    /// The process's participant.
    pub participant: Guid,
    /// The full names of nodes, by their readers and writers.
    pub nodes: HashMap<Guid, String>,
}

/// The most nodes, and the most readers and writers, in one message.
const MOST_NODES: usize = 10_000;
const MOST_ENTITIES: usize = 100_000;

impl ParticipantEntities {
    /// Parses a message, with its encapsulation. Identifiers have 16 bytes since ROS 2 Iron, and had 24 before.
    pub fn parse(message: &[u8]) -> Option<Self> {
        Self::with_ids_of(message, 16).or_else(|| Self::with_ids_of(message, 24))
    }

    fn with_ids_of(message: &[u8], id: usize) -> Option<Self> {
        let mut cdr = Cdr::new(message)?;
        let participant = cdr.guid(id)?;
        let mut nodes = HashMap::new();
        for _ in 0..cdr.count(MOST_NODES)? {
            let namespace = cdr.text()?;
            let name = cdr.text()?;
            let full = format!("{}/{name}", namespace.trim_end_matches('/'));
            // Readers, then writers.
            for _ in 0..2 {
                for _ in 0..cdr.count(MOST_ENTITIES)? {
                    let guid = cdr.guid(id)?;
                    if nodes.len() < MOST_ENTITIES {
                        nodes.insert(guid, full.clone());
                    }
                }
            }
        }
        // The rest is padding; more than that means that the size of identifiers was wrong.
        cdr.is_at_end()
            .then_some(ParticipantEntities { participant, nodes })
    }
}

/// A cursor over a CDR message.
struct Cdr<'a> {
    rest: &'a [u8],
    /// Bytes read after the encapsulation, which alignment counts from.
    at: usize,
    is_little: bool,
}

impl<'a> Cdr<'a> {
    fn new(message: &'a [u8]) -> Option<Self> {
        let (head, rest) = message.split_at_checked(4)?;
        let is_little = match head {
            [0, 1, ..] => true,
            [0, 0, ..] => false,
            _ => return None,
        };
        Some(Cdr {
            rest,
            at: 0,
            is_little,
        })
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        (self.rest, self.at) = (rest, self.at + count);
        Some(taken)
    }

    fn number(&mut self) -> Option<usize> {
        self.take(self.at.next_multiple_of(4) - self.at)?;
        let bytes = self.take(4)?.try_into().ok()?;
        let number = if self.is_little {
            u32::from_le_bytes(bytes)
        } else {
            u32::from_be_bytes(bytes)
        };
        Some(number as usize)
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        self.number().filter(|count| *count <= most)
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        let bytes = self.take(length)?;
        let text = std::str::from_utf8(bytes.strip_suffix(&[0])?).ok()?;
        (!text.contains('\0')).then_some(text)
    }

    fn guid(&mut self, id: usize) -> Option<Guid> {
        self.take(id)?.first_chunk().copied()
    }

    fn is_at_end(&self) -> bool {
        self.rest.len() < 4 && self.rest.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A message as rmw writes it: one participant, its nodes with their writers.
    fn message(id: usize, nodes: &[(&str, &str, &[u8])]) -> Vec<u8> {
        fn number(bytes: &mut Vec<u8>, value: usize) {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes.extend((value as u32).to_le_bytes());
        }
        fn text(bytes: &mut Vec<u8>, text: &str) {
            number(bytes, text.len() + 1);
            bytes.extend(text.bytes());
            bytes.push(0);
        }
        let guid = |last: u8| {
            let mut guid = vec![0; id];
            guid[15] = last;
            guid
        };
        let mut bytes = vec![0, 1, 0, 0];
        bytes.extend(guid(255));
        number(&mut bytes, nodes.len());
        for (namespace, name, writers) in nodes {
            text(&mut bytes, namespace);
            text(&mut bytes, name);
            number(&mut bytes, 0);
            number(&mut bytes, writers.len());
            for writer in *writers {
                bytes.extend(guid(*writer));
            }
        }
        bytes
    }

    #[test]
    fn nodes_are_read_with_ids_of_both_sizes() {
        let nodes: &[(&str, &str, &[u8])] = &[("/", "lidar", &[1, 2]), ("/arm", "joint_1", &[3])];
        for id in [16, 24] {
            let read = ParticipantEntities::parse(&message(id, nodes)).expect("a message");
            let mut writer = [0; 16];
            writer[15] = 2;
            assert_eq!(read.nodes[&writer], "/lidar", "ids of {id} bytes");
            writer[15] = 3;
            assert_eq!(read.nodes[&writer], "/arm/joint_1");
            assert_eq!(read.participant[15], 255);
        }
    }

    #[test]
    fn a_message_that_is_cut_or_claims_millions_of_nodes_is_refused() {
        let whole = message(16, &[("/", "lidar", &[1, 2])]);
        for end in 0..whole.len() {
            assert_eq!(
                ParticipantEntities::parse(&whole[..end]),
                None,
                "{end} bytes"
            );
        }
        let mut lying = whole.clone();
        lying[20..24].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(ParticipantEntities::parse(&lying), None);
    }

    #[test]
    fn a_hash_is_read_from_user_data_as_discovery_has_it() {
        let text = b"a=b;typehash=RIHS01_5c6a;c=d;";
        for length in [29_u32.to_le_bytes(), 29_u32.to_be_bytes()] {
            for padding in 0..4 {
                let told = [&length, &text[..], &vec![0; padding]].concat();
                let hash = announced_type_hash(&told);
                assert_eq!(hash.as_deref(), Some("RIHS01_5c6a"), "{told:?}");
            }
        }
        // A wrong length, and a hash that is not text.
        assert_eq!(announced_type_hash(b"\xff\xff\xff\xfftypehash=x;"), None);
        assert_eq!(announced_type_hash(b"typehash=\xff;"), None);
        assert_eq!(announced_type_hash(b"typehash=;"), None);
    }

    #[test]
    fn names_of_services_and_of_ros_itself_are_not_topics() {
        for hidden in ["rq/aRequest", "rr/aReply", "rt/", "", DISCOVERY_TOPIC] {
            assert_eq!(ros_topic_name(hidden), None, "{hidden}");
        }
        assert_eq!(ros_topic_name("Square").as_deref(), Some("Square"));
        assert_eq!(
            ros_topic_name("rt/robot1/tf").as_deref(),
            Some("/robot1/tf")
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = announced_type_hash(&bytes);
            if bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&[0, 1, 0, 0]);
            }
            let _ = ParticipantEntities::parse(&bytes);
        }
    }
}
