//! Every driver of the engine against a slow oracle: late, equal, missing and negative stamps, two keys, empty sides.

use std::time::Duration;

use asof_align::{Align, Lane, Match, Merge, Pick, Rule, Span, SpanMerge, Track};
use proptest::prelude::*;

mod judge;

use judge::{Found, Row, oracle};

fn found(matched: &Match<usize>) -> Found {
    match matched {
        Match::Found(message) => Some((message.value, None)),
        Match::Between {
            before,
            after,
            fraction,
        } => Some((before.value, Some((after.value, *fraction)))),
        Match::Missing(_) => None,
    }
}

fn of_key(rows: &[Row], key: u8) -> Vec<(i64, usize)> {
    let rows = rows.iter().enumerate().filter(|(_, row)| row.1 == key);
    rows.map(|(place, row)| (row.0, place)).collect()
}

fn by_track(messages: &[Row], anchors: &[Row], rule: Rule) -> Vec<Found> {
    let track = |key| -> Track<usize> {
        let rows = of_key(messages, key).into_iter();
        rows.map(|(t, place)| (t.into(), place)).collect()
    };
    let tracks = [track(0), track(1)];
    let mut cursors = tracks.each_ref().map(Track::cursor);
    let pick = |&(t, key): &Row| {
        let matched = cursors[usize::from(key)].pick(t.into(), rule);
        found(&matched.map(|place| *place))
    };
    anchors.iter().map(pick).collect()
}

fn by_lane(messages: &[Row], anchors: &[Row], rule: Rule) -> Vec<Found> {
    let mut lanes = [Lane::default(), Lane::default()];
    for (place, &(t, key)) in messages.iter().enumerate() {
        lanes[usize::from(key)].insert(t, place);
    }
    let pick = |&(t, key): &Row| {
        let matched = lanes[usize::from(key)].pick(t, rule);
        found(&matched.map(|place| *place))
    };
    anchors.iter().map(pick).collect()
}

/// As they arrive: with this lateness, every message is in time.
fn by_stream(messages: &[Row], anchors: &[Row], rule: Rule) -> Vec<Found> {
    let mut all = vec![None; anchors.len()];
    for key in [0, 1] {
        let mut align = Align::new(vec![rule], 10_000).with_lateness(Duration::from_nanos(400));
        let mut emit = |row: asof_align::AlignedRow<usize>| {
            assert!(!row.is_early, "nothing is early");
            all[row.anchor.value] = found(&row.matches[0]);
        };
        let (mut theirs, mut ours) = (of_key(messages, key), of_key(anchors, key));
        // Alternately, so that both sides wait for each other.
        while !theirs.is_empty() || !ours.is_empty() {
            if !theirs.is_empty() {
                let (t, place) = theirs.remove(0);
                align.add(0, t.into(), place, &mut emit);
            }
            if !ours.is_empty() {
                let (t, place) = ours.remove(0);
                align.add_anchor(t.into(), place, &mut emit);
            }
        }
        align.finish(&mut emit);
    }
    all
}

/// Both sides sorted by time, all keys together.
fn by_merge(messages: &[Row], anchors: &[Row], rule: Rule) -> Vec<Found> {
    let mut all = vec![None; anchors.len()];
    let mut known = Merge::new(rule);
    let mut coming = sorted(messages).into_iter().peekable();
    for place in sorted(anchors) {
        let (t, key) = anchors[place];
        while let Some(next) = coming.next_if(|&next| known.needs(&key, t, messages[next].0)) {
            known.add(messages[next].1, messages[next].0, next);
        }
        all[place] = found(&known.pick(&key, t).map(|place| *place));
    }
    all
}

fn sorted(rows: &[Row]) -> Vec<usize> {
    let mut places: Vec<usize> = (0..rows.len()).collect();
    places.sort_by_key(|&place| rows[place].0);
    places
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    proptest::collection::vec((-100i64..100, 0u8..2), 0..60)
}

fn rule() -> impl Strategy<Value = Rule> {
    let tolerance = proptest::option::of(0u64..40);
    (0..Pick::ALL.len(), tolerance, any::<bool>()).prop_map(|(pick, tolerance, or_nearest)| {
        let rule = Rule::new(Pick::ALL[pick]);
        let rule = if or_nearest { rule.or_nearest() } else { rule };
        tolerance.map_or(rule, |nanos| rule.within(Duration::from_nanos(nanos)))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn all_drivers_find_what_the_oracle_finds(messages in rows(), anchors in rows(), rule in rule()) {
        let wanted: Vec<Found> = anchors.iter().map(|&anchor| oracle(&messages, anchor, rule)).collect();
        prop_assert_eq!(&by_track(&messages, &anchors, rule), &wanted, "track, {:?}", rule);
        prop_assert_eq!(&by_lane(&messages, &anchors, rule), &wanted, "lane, {:?}", rule);
        prop_assert_eq!(&by_stream(&messages, &anchors, rule), &wanted, "stream, {:?}", rule);
        prop_assert_eq!(&by_merge(&messages, &anchors, rule), &wanted, "merge, {:?}", rule);
    }

    #[test]
    fn a_span_has_all_messages_around_an_instant(
        messages in rows(), anchors in rows(), from in -40i64..40, length in 0i64..40,
    ) {
        let span = Span { from, to: from + length };
        let mut known = SpanMerge::new(span);
        let mut coming = sorted(&messages).into_iter().peekable();
        for place in sorted(&anchors) {
            let (t, key) = anchors[place];
            while let Some(next) = coming.next_if(|&next| known.needs(t, messages[next].0)) {
                known.add(messages[next].1, messages[next].0, next);
            }
            known.forget(t);
            let found: Vec<usize> = known.pick(&key, t).copied().collect();
            let is_in = |place: &usize| {
                let (at, of) = messages[*place];
                of == key && (t + from..=t + from + length).contains(&at)
            };
            let wanted: Vec<usize> = sorted(&messages).into_iter().filter(is_in).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}

#[test]
fn the_words_are_those_of_the_rules() {
    for pick in Pick::ALL {
        assert_eq!(pick.word().parse(), Ok(pick));
    }
    let wrong = "nearst".parse::<Pick>().expect_err("a wrong word");
    assert_eq!(
        wrong.to_string(),
        "'nearst' is not one of nearest, last, before, next, after, interpolate"
    );
    assert_eq!("log".parse(), Ok(asof_align::On::LogTime));
}
