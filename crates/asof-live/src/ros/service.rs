//! The type description service of a node on DDS: a topic of requests, a topic of replies, and their correlation.

use super::GET_TYPE_DESCRIPTION;

/// The suffix of the topics' names.
const SERVICE: &str = "/get_type_description";

/// The node whose type description service replies on a DDS topic; `None` for every other topic.
///
/// ```
/// use asof_live::ros::describing_node;
///
/// let kind = "type_description_interfaces::srv::dds_::GetTypeDescription_Response_";
/// let node = describing_node("rr/base/driver/get_type_descriptionReply", kind);
/// assert_eq!(node.as_deref(), Some("/base/driver"));
/// assert_eq!(describing_node("rr/base/driver/get_parametersReply", kind), None);
/// ```
pub fn describing_node(dds_topic: &str, dds_type: &str) -> Option<String> {
    let service = dds_topic.strip_prefix("rr")?.strip_suffix("Reply")?;
    let node = service.strip_suffix(SERVICE)?;
    let is_it = dds_type.strip_prefix(GET_TYPE_DESCRIPTION) == Some("Response_");
    (is_it && node.len() > 1 && node.starts_with('/')).then(|| node.to_owned())
}

/// The topic of a node's type description requests, and the type of its messages.
pub fn description_request_topic(node: &str) -> (String, String) {
    (
        format!("rq{node}{SERVICE}Request"),
        format!("{GET_TYPE_DESCRIPTION}Request_"),
    )
}

/// The topic of a node's type description replies, and the type of its messages.
pub fn description_reply_topic(node: &str) -> (String, String) {
    (
        format!("rr{node}{SERVICE}Reply"),
        format!("{GET_TYPE_DESCRIPTION}Response_"),
    )
}

/// Where a request and its reply carry the request's identity. It depends on the ROS 2 middleware.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Correlation {
    /// In front of the message: the client and a sequence number, as in rmw_cyclonedds.
    Payload,
    /// In the inline quality of service, as in rmw_fastrtps and the standard.
    Inline,
}

impl Correlation {
    /// The correlation of a peer, by its vendor id, which every GUID starts with.
    pub fn of_vendor(vendor: [u8; 2]) -> Self {
        const CYCLONE: [u8; 2] = [0x01, 0x10];
        if vendor == CYCLONE {
            Correlation::Payload
        } else {
            Correlation::Inline
        }
    }
}

/// The length of the encapsulation in bytes.
const HEAD: usize = 4;

/// Puts the client and the sequence number of a request in front of it. The message is little-endian.
pub fn with_request_id(message: &[u8], client: u64, number: i64) -> Vec<u8> {
    let (head, body) = message.split_at(HEAD.min(message.len()));
    // Sixteen bytes: the alignment of the rest does not change.
    [head, &client.to_le_bytes(), &number.to_le_bytes(), body].concat()
}

/// Removes the client and the sequence number of a request from a reply; `None` where they are missing.
pub fn split_request_id(message: &[u8]) -> Option<(u64, i64, Vec<u8>)> {
    let (head, rest) = message.split_at_checked(HEAD)?;
    let (client, rest) = rest.split_first_chunk()?;
    let (number, body) = rest.split_first_chunk()?;
    let (client, number) = match head {
        [0, 1, ..] => (u64::from_le_bytes(*client), i64::from_le_bytes(*number)),
        [0, 0, ..] => (u64::from_be_bytes(*client), i64::from_be_bytes(*number)),
        _ => return None,
    };
    Some((client, number, [head, body].concat()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_of_a_node_are_found_again() {
        let (topic, kind) = description_reply_topic("/base/driver");
        assert_eq!(
            describing_node(&topic, &kind).as_deref(),
            Some("/base/driver")
        );
        let (request, kind_of_request) = description_request_topic("/base/driver");
        assert_eq!(request, "rq/base/driver/get_type_descriptionRequest");
        for (topic, kind) in [
            (request.as_str(), kind_of_request.as_str()),
            (topic.as_str(), "std_msgs::msg::dds_::String_"),
            ("rr/get_type_descriptionReply", kind.as_str()),
            ("rrReply", kind.as_str()),
            ("", ""),
        ] {
            assert_eq!(describing_node(topic, kind), None, "{topic}");
        }
    }

    #[test]
    fn the_id_of_a_request_is_read_in_both_orders_of_bytes() {
        let sent = with_request_id(&[0, 1, 0, 0, 7, 8], 3, 5);
        assert_eq!(sent.len(), 22);
        assert_eq!(
            split_request_id(&sent),
            Some((3, 5, vec![0, 1, 0, 0, 7, 8]))
        );
        let mut big = vec![0, 0, 0, 0];
        big.extend(3_u64.to_be_bytes());
        big.extend(5_i64.to_be_bytes());
        big.push(9);
        assert_eq!(split_request_id(&big), Some((3, 5, vec![0, 0, 0, 0, 9])));
        for end in 0..20 {
            assert_eq!(split_request_id(&sent[..end]), None, "{end} bytes");
        }
        assert_eq!(split_request_id(&[9; 30]), None);
    }
}
