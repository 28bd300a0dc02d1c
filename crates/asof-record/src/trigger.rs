//! What triggers a snapshot: a field's value, a log message, a falling rate.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use asof_core::{Channel, Comparison, Message, Stamp};
use asof_decode::{Archetype, Decoder, FieldPath, LogLevel};
use serde_json::Value;

/// A condition that triggers a snapshot.
///
/// - `/bumper.data == true`: a field of a topic's messages, compared by `==`, `!=`, `<`, `<=`, `>` or `>=` with a
///   number, `true`, `false` or text.
/// - `log >= error`: a log message of this level or worse, on any topic.
/// - `rate(/scan) < 5`: a topic that has been faster falls below five messages a second.
///
/// ```
/// use asof_record::Trigger;
///
/// let trigger: Trigger = "/battery.voltage < 11.5".parse()?;
/// assert_eq!(trigger.to_string(), "/battery.voltage < 11.5");
/// assert!("when it breaks".parse::<Trigger>().is_err());
/// # Ok::<(), asof_record::TriggerError>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Trigger {
    /// A field of a topic's messages has a value; fires when the comparison becomes true.
    Field {
        /// The topic.
        topic: String,
        /// The field.
        path: FieldPath,
        /// How it is compared.
        comparison: Comparison,
        /// The value to compare with: a number, a boolean or text.
        value: Value,
    },
    /// A log message of this level or worse.
    Log(LogLevel),
    /// A topic falls below this rate, in hertz, after it has reached it.
    Rate {
        /// The topic.
        topic: String,
        /// The lowest rate that does not fire.
        hertz: f64,
    },
}

impl Trigger {
    /// The topic that it watches; none for log messages.
    pub fn topic(&self) -> Option<&str> {
        match self {
            Trigger::Field { topic, .. } | Trigger::Rate { topic, .. } => Some(topic),
            Trigger::Log(_) => None,
        }
    }

    /// Why it can never fire on a channel of its topic: there is no such field.
    pub fn problem_on(&self, channel: &Channel) -> Option<String> {
        match self {
            Trigger::Field { .. } => decoder_of(self, channel).err(),
            Trigger::Rate { .. } | Trigger::Log(_) => None,
        }
    }
}

/// Why text is not a trigger.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is not a trigger: {reason}; it should look like '/bumper.data == true', 'log >= error' or 'rate(/scan) < 5'"
)]
pub struct TriggerError {
    text: String,
    reason: String,
}

impl FromStr for Trigger {
    type Err = TriggerError;

    fn from_str(text: &str) -> Result<Self, TriggerError> {
        let wrong = |reason: String| TriggerError {
            text: text.to_owned(),
            reason,
        };
        let at = text
            .find(['=', '!', '<', '>'])
            .ok_or_else(|| wrong("it has no comparison".to_owned()))?;
        let (left, rest) = text.split_at(at);
        let comparison = Comparison::leading(rest);
        // `=` and `<>` are the spellings of SQL.
        let spelled = comparison.filter(|(one, _)| rest.starts_with(&one.to_string()));
        let (comparison, right) = spelled.ok_or_else(|| {
            wrong("the comparison is not one of ==, !=, <, <=, > and >=".to_owned())
        })?;
        let (left, right) = (left.trim(), right.trim());
        if right.is_empty() {
            return Err(wrong(format!("nothing comes after {comparison}")));
        }
        if left == "log" {
            let level: LogLevel = right
                .parse()
                .map_err(|error: asof_decode::LogLevelError| wrong(error.to_string()))?;
            return match comparison {
                Comparison::GreaterOrEqual => Ok(Trigger::Log(level)),
                _ => Err(wrong("a log level can only be compared by >=".to_owned())),
            };
        }
        if let Some(inner) = left.strip_prefix("rate(") {
            let topic = inner.strip_suffix(')').map(str::trim);
            let topic = topic.filter(|topic| !topic.is_empty());
            let topic = topic.ok_or_else(|| wrong("rate(…) needs a topic".to_owned()))?;
            let hertz = right.parse().ok();
            let hertz = hertz.filter(|hertz: &f64| (1e-4..=1e6).contains(hertz));
            let hertz = hertz
                .ok_or_else(|| wrong(format!("'{right}' is not a rate from 0.0001 to 1000000")))?;
            if comparison != Comparison::Less {
                return Err(wrong("a rate can only be compared by <".to_owned()));
            }
            let topic = topic.to_owned();
            return Ok(Trigger::Rate { topic, hertz });
        }
        let name = left.rfind('/').map_or(0, |slash| slash + 1);
        let (topic, path) = match left[name..].find('.') {
            Some(dot) if name + dot > 0 => (&left[..name + dot], &left[name + dot + 1..]),
            _ => return Err(wrong("it does not name a field of a topic".to_owned())),
        };
        let path = FieldPath::parse(path).map_err(|error| wrong(error.to_string()))?;
        Ok(Trigger::Field {
            topic: topic.to_owned(),
            path,
            comparison,
            value: literal(right),
        })
    }
}

/// A number, `true`, `false`, or text with or without quotes.
fn literal(text: &str) -> Value {
    let quoted = ['"', '\''].iter().find_map(|quote| {
        let inner = text.strip_prefix(*quote)?;
        inner.strip_suffix(*quote)
    });
    match (quoted, serde_json::from_str(text)) {
        (Some(inner), _) => Value::from(inner),
        (None, Ok(value @ (Value::Bool(_) | Value::Number(_)))) => value,
        _ => Value::from(text),
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trigger::Field {
                topic,
                path,
                comparison,
                value,
            } => write!(f, "{topic}.{path} {comparison} {value}"),
            Trigger::Log(level) => write!(f, "log >= {level}"),
            Trigger::Rate { topic, hertz } => write!(f, "rate({topic}) < {hertz}"),
        }
    }
}

/// Whether the comparison of a field's value with the given one holds.
fn holds(found: &Value, comparison: Comparison, wanted: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Bool(flag) => Some(f64::from(u8::from(*flag))),
        // NaN and the infinities, for which JSON has no number.
        Value::String(text) => text.parse().ok().filter(|number: &f64| !number.is_finite()),
        value => value.as_f64(),
    };
    let order = match (found, wanted) {
        (Value::String(found), Value::String(wanted)) => Some(found.cmp(wanted)),
        _ => match (number(found), number(wanted)) {
            (Some(found), Some(wanted)) => found.partial_cmp(&wanted),
            _ => None,
        },
    };
    // A value that is missing, or not a number, is not equal to the given one.
    order.map_or(comparison == Comparison::NotEqual, |order| {
        comparison.holds(order)
    })
}

/// Watches for triggers.
pub(crate) struct Lookout {
    watched: Vec<Watched>,
    /// Why triggers can never fire; one message for each.
    pub problems: Vec<String>,
}

struct Watched {
    trigger: Trigger,
    decoders: Vec<(Arc<Channel>, Option<FieldDecoder>)>,
    /// Whether the condition held at the last check: the field's comparison, or a rate that was high enough.
    held: bool,
    rate: Option<RateMeter>,
}

/// A field, and the decoder for it.
type FieldDecoder = (FieldPath, Decoder);

/// At most this many channels of one trigger keep their decoders.
const MOST_DECODERS: usize = 16;
const MOST_PROBLEMS: usize = 100;

impl Lookout {
    pub fn new(triggers: Vec<Trigger>) -> Self {
        let watched = triggers.into_iter().map(|trigger| Watched {
            rate: match &trigger {
                Trigger::Rate { hertz, .. } => Some(RateMeter::new(*hertz)),
                _ => None,
            },
            trigger,
            decoders: Vec::new(),
            held: false,
        });
        Lookout {
            watched: watched.collect(),
            problems: Vec::new(),
        }
    }

    /// Checks a message that came at a time, by a clock that never goes back; returns the first trigger that fires.
    pub fn heard(&mut self, message: &Message, at: Stamp) -> Option<String> {
        let mut happened = None;
        for watched in &mut self.watched {
            if watched.hears(message, at, &mut self.problems) {
                happened.get_or_insert_with(|| watched.trigger.to_string());
            }
        }
        happened
    }

    /// Checks the time; returns the first trigger that fires.
    pub fn tick(&mut self, now: Stamp) -> Option<String> {
        let mut happened = None;
        for watched in &mut self.watched {
            let Some(rate) = &mut watched.rate else {
                continue;
            };
            let is_high = rate.is_high(now);
            if watched.held && !is_high {
                happened.get_or_insert_with(|| watched.trigger.to_string());
            }
            watched.held = is_high;
        }
        happened
    }
}

impl Watched {
    fn hears(&mut self, message: &Message, at: Stamp, problems: &mut Vec<String>) -> bool {
        match &self.trigger {
            Trigger::Rate { topic, .. } => {
                if let Some(rate) = &mut self.rate
                    && message.channel.topic == *topic
                {
                    rate.count(at);
                }
                false
            }
            Trigger::Log(least) => {
                let least = *least;
                let type_name = message.channel.type_name();
                if LogLevel::of(type_name, i64::MAX).is_none() {
                    return false;
                }
                let found = self.value(message, problems);
                let level = found.and_then(|value| level_in(message.channel.type_name(), &value));
                // Every such message fires.
                level.is_some_and(|level| level >= least)
            }
            Trigger::Field {
                topic,
                comparison,
                value,
                ..
            } => {
                if message.channel.topic != *topic {
                    return false;
                }
                let (comparison, wanted) = (*comparison, value.clone());
                let found = self.value(message, problems);
                let holds = found.is_some_and(|found| holds(&found, comparison, &wanted));
                let happened = holds && !self.held;
                self.held = holds;
                happened
            }
        }
    }

    /// The value of the trigger's field.
    fn value(&mut self, message: &Message, problems: &mut Vec<String>) -> Option<Value> {
        let channel = &message.channel;
        let mut known = self.decoders.iter();
        let known = known.position(|(known, _)| Arc::ptr_eq(known, channel));
        let at = known.unwrap_or_else(|| {
            if self.decoders.len() >= MOST_DECODERS {
                self.decoders.remove(0);
            }
            let made = decoder_of(&self.trigger, channel);
            if let Err(problem) = &made
                && problems.len() < MOST_PROBLEMS
                && !problems.contains(problem)
            {
                problems.push(problem.clone());
            }
            self.decoders.push((Arc::clone(channel), made.ok()));
            self.decoders.len() - 1
        });
        let (path, decoder) = self.decoders[at].1.as_mut()?;
        let text = decoder.json(&message.payload).ok()?;
        let message: Value = serde_json::from_str(&text).ok()?;
        path.value(&message).cloned()
    }
}

/// A decoder for the trigger's field, or the reason why there is none.
fn decoder_of(trigger: &Trigger, channel: &Channel) -> Result<FieldDecoder, String> {
    let paths = match trigger {
        Trigger::Field { path, .. } => vec![path.clone()],
        _ => Archetype::of(channel.type_name())
            .map_or(&[][..], |archetype| archetype.paths_of("level"))
            .iter()
            .filter_map(|path| FieldPath::parse(path).ok())
            .collect(),
    };
    let mut reason = "its type does not have that field".to_owned();
    for path in paths {
        let made = Decoder::new(channel, &path.projection(), &[]);
        let made = made.map_err(|error| error.to_string());
        let found = made.and_then(|decoder| {
            let field = path.resolve(decoder.schema());
            field.map(|_| decoder).map_err(|error| error.to_string())
        });
        match found {
            Ok(decoder) => return Ok((path, decoder)),
            Err(error) => reason = error,
        }
    }
    Err(format!(
        "the trigger '{trigger}' cannot be evaluated on {} ({}): {reason}",
        channel.topic,
        channel.type_name()
    ))
}

/// A level as a number, or by its name.
fn level_in(type_name: &str, value: &Value) -> Option<LogLevel> {
    match value {
        Value::String(name) => name.parse().ok(),
        value => LogLevel::of(type_name, value.as_i64()?),
    }
}

/// Number of buckets in the interval that a rate is measured over.
const RATE_BUCKETS: usize = 20;

/// The rate of messages over the last seconds.
struct RateMeter {
    hertz: f64,
    /// The length of a bucket, in nanoseconds.
    piece: i64,
    counts: [u64; RATE_BUCKETS],
    /// The bucket that is being filled.
    current: Option<i64>,
    /// Complete buckets.
    filled: usize,
}

impl RateMeter {
    fn new(hertz: f64) -> Self {
        // Long enough for a few messages at this rate.
        let window = Duration::from_secs_f64((4.0 / hertz).max(2.0));
        RateMeter {
            hertz,
            piece: (window.as_nanos() / RATE_BUCKETS as u128) as i64,
            counts: [0; RATE_BUCKETS],
            current: None,
            filled: 0,
        }
    }

    fn count(&mut self, at: Stamp) {
        self.turn(at);
        if let Some(current) = self.current {
            self.counts[current.rem_euclid(RATE_BUCKETS as i64) as usize] += 1;
        }
    }

    /// Advances to the bucket of a time. Starts over when the clock is set back.
    fn turn(&mut self, at: Stamp) {
        let now = at.nanos().div_euclid(self.piece);
        let Some(current) = self.current else {
            self.current = Some(now);
            return;
        };
        let passed = now.saturating_sub(current);
        if passed < -1 {
            *self = RateMeter::new(self.hertz);
            self.current = Some(now);
            return;
        }
        for step in 1..=passed.clamp(0, RATE_BUCKETS as i64) {
            let place = (current + step).rem_euclid(RATE_BUCKETS as i64) as usize;
            self.counts[place] = 0;
        }
        if passed > 0 {
            self.current = Some(now);
            self.filled = self
                .filled
                .saturating_add(passed as usize)
                .min(RATE_BUCKETS);
        }
    }

    /// Whether the rate is high enough, over the complete buckets.
    fn is_high(&mut self, now: Stamp) -> bool {
        // Without any message there is no rate yet.
        if self.current.is_none() {
            return false;
        }
        self.turn(now);
        let Some(current) = self.current.filter(|_| self.filled >= RATE_BUCKETS - 1) else {
            return false;
        };
        let open = current.rem_euclid(RATE_BUCKETS as i64) as usize;
        let whole: u64 = self.counts.iter().sum::<u64>() - self.counts[open];
        let seconds = (RATE_BUCKETS - 1) as f64 * self.piece as f64 / 1e9;
        whole as f64 / seconds >= self.hertz
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asof_core::Schema;
    use proptest::prelude::*;

    fn message(topic: &str, type_name: &str, definition: &str, at: i64, payload: &[u8]) -> Message {
        let channel = Channel {
            topic: topic.to_owned(),
            message_encoding: "cdr".to_owned(),
            schema: Some(Arc::new(Schema {
                name: type_name.to_owned(),
                encoding: "ros2msg".to_owned(),
                data: definition.as_bytes().to_vec().into(),
            })),
            ..Channel::default()
        };
        Message {
            channel: Arc::new(channel),
            log_time: at.into(),
            publish_time: at.into(),
            sequence: 0,
            payload: payload.to_vec().into(),
        }
    }

    fn bumper(is_pressed: bool) -> Message {
        let payload = [0, 1, 0, 0, u8::from(is_pressed)];
        message("/bumper", "std_msgs/msg/Bool", "bool data", 0, &payload)
    }

    fn lookout(text: &str) -> Lookout {
        Lookout::new(vec![text.parse().expect("a trigger")])
    }

    /// A message that came when it was logged.
    fn heard(lookout: &mut Lookout, message: &Message) -> Option<String> {
        lookout.heard(message, message.log_time)
    }

    #[test]
    fn a_field_triggers_when_it_becomes_so_and_not_for_as_long_as_it_is() {
        let mut lookout = lookout("/bumper.data == true");
        let fired = [false, true, true, false, true].map(|is_pressed| {
            let happened = heard(&mut lookout, &bumper(is_pressed));
            happened.is_some()
        });
        assert_eq!(fired, [false, true, false, false, true]);
    }

    #[test]
    fn numbers_text_and_truth_are_compared_as_what_they_are() {
        let compares = |found: Value, sign: &str, wanted: &str| {
            let comparison = Comparison::of_sign(sign).expect("a sign");
            holds(&found, comparison, &literal(wanted))
        };
        assert!(compares(11.4.into(), "<", "11.5") && !compares(11.5.into(), "<", "11.5"));
        assert!(compares(11.5.into(), "<=", "11.5") && compares(7.into(), "==", "7.0"));
        assert!(compares(true.into(), "==", "true") && compares(true.into(), "==", "1"));
        assert!(compares("map".into(), "==", "map") && compares("map".into(), "==", "'map'"));
        assert!(compares("map".into(), "!=", "odom") && !compares("map".into(), "<", "5"));
        assert!(compares("NaN".into(), "!=", "5") && !compares("NaN".into(), "<", "5"));
        assert!(!compares(Value::Null, "==", "0") && !compares(Value::Null, ">=", "0"));
    }

    #[test]
    fn a_field_that_the_type_does_not_have_is_told_once() {
        let mut lookout = lookout("/bumper.pressed == true");
        let pressed = bumper(true);
        assert_eq!(heard(&mut lookout, &pressed), None);
        assert_eq!(heard(&mut lookout, &pressed), None);
        assert_eq!(lookout.problems.len(), 1);
        assert!(
            lookout.problems[0].contains("/bumper"),
            "{:?}",
            lookout.problems
        );
    }

    #[test]
    fn log_messages_of_a_level_trigger_each_time() {
        let definition = "uint8 level\nstring name\nstring msg";
        let log = |level: u8| {
            let payload = [
                0, 1, 0, 0, level, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0,
            ];
            message("/rosout", "rcl_interfaces/msg/Log", definition, 0, &payload)
        };
        let mut lookout = lookout("log >= error");
        let fired = [20, 30, 40, 50, 20].map(|level| heard(&mut lookout, &log(level)).is_some());
        assert_eq!(fired, [false, false, true, true, false]);
        assert!(heard(&mut lookout, &bumper(true)).is_none());
    }

    #[test]
    fn a_rate_triggers_when_it_falls_and_again_after_it_has_recovered() {
        let mut lookout = lookout("rate(/scan) < 5");
        let scan = |at: i64| message("/scan", "std_msgs/msg/Empty", "", at, &[0, 1, 0, 0]);
        let mut happened = Vec::new();
        // Ten a second, but nothing from the fifth to the tenth second.
        for tenth in 0..200_i64 {
            let at = tenth * 100_000_000;
            if !(50..100).contains(&tenth) && tenth < 150 {
                let _ = heard(&mut lookout, &scan(at));
            }
            if lookout.tick(at.into()).is_some() {
                happened.push(tenth);
            }
        }
        assert_eq!(happened.len(), 2, "{happened:?}");
        assert!(
            (50..70).contains(&happened[0]) && (150..170).contains(&happened[1]),
            "{happened:?}"
        );
    }

    #[test]
    fn a_topic_that_never_came_has_not_fallen() {
        let mut lookout = lookout("rate(/scan) < 5");
        assert!((0..100).all(|second| lookout.tick((second * 1_000_000_000_i64).into()).is_none()));
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for (text, reason) in [
            ("", "no comparison"),
            ("/a.b", "no comparison"),
            ("/a == 1", "does not name a field"),
            ("/a.b =< 1", "the comparison is not one of"),
            ("/a.b ==", "nothing comes after"),
            ("/a. == 1", "empty"),
            ("log == error", "only be compared by >="),
            ("log >= loud", "not a log level"),
            ("rate() < 5", "needs a topic"),
            ("rate(/a) > 5", "only be compared by <"),
            ("rate(/a) < often", "not a rate"),
        ] {
            let error = text.parse::<Trigger>().expect_err(text).to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[/a-z.=!<>() 0-9\\[\\]]{0,40}") {
            if let Ok(trigger) = text.parse::<Trigger>() {
                prop_assert_eq!(trigger.to_string().parse::<Trigger>(), Ok(trigger));
            }
        }

        #[test]
        fn no_times_panic(times in proptest::collection::vec(any::<i64>(), 0..20)) {
            let mut lookout = lookout("rate(/scan) < 5");
            for at in times {
                let _ = heard(&mut lookout, &message("/scan", "std_msgs/msg/Empty", "", at, &[0, 1, 0, 0]));
                let _ = lookout.tick(at.into());
            }
        }
    }
}
