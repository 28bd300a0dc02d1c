//! The judge of all users of the engine.

use asof_align::{Pick, Rule};

/// The stamp and the key of a message; its place is its order of arrival.
pub type Row = (i64, u8);
/// The places of the match: one, or two and the part between them.
pub type Found = Option<(usize, Option<(usize, f64)>)>;

/// The judge: looks at all messages, and knows nothing of order.
pub fn oracle(messages: &[Row], (t, key): Row, rule: Rule) -> Found {
    let far = |at: usize| messages[at].0.abs_diff(t);
    let near = |at: &usize| rule.allows(far(*at));
    let of_key = || (0..messages.len()).filter(|&at| messages[at].1 == key);
    // The last to arrive of the latest, and the first to arrive of the earliest.
    let last = |or_equal: bool| {
        let before = of_key().filter(|&at| messages[at].0 < t || (or_equal && messages[at].0 == t));
        before.max_by_key(|&at| (messages[at].0, at))
    };
    let first = |or_equal: bool| {
        let after = of_key().filter(|&at| messages[at].0 > t || (or_equal && messages[at].0 == t));
        after.min_by_key(|&at| (messages[at].0, at))
    };
    let nearest = || of_key().min_by_key(|&at| (far(at), messages[at].0, at));
    let one = |found: Option<usize>| found.filter(near).map(|at| (at, None));
    match rule.pick() {
        Pick::Last => one(last(true)),
        Pick::Before => one(last(false)),
        Pick::Next => one(first(true)),
        Pick::After => one(first(false)),
        Pick::Nearest => one(nearest()),
        Pick::Interpolate => match (last(false), first(true)) {
            (_, Some(there)) if messages[there].0 == t => Some((there, None)),
            (Some(a), Some(b)) if near(&a) && near(&b) => {
                let part = far(a) as f64 / messages[b].0.abs_diff(messages[a].0) as f64;
                Some((a, Some((b, part))))
            }
            (a, b) if rule.has_nearest_at_ends() => {
                let both = [a, b].into_iter().flatten();
                one(both.min_by_key(|&at| (far(at), messages[at].0)))
            }
            _ => None,
        },
    }
}
