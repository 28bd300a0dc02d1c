//! Sets as typed tuples, for two to nine topics of different types.

use asof_core::Stamp;

use super::{Stamped, SyncEvent, Synchronizer};

/// One of several types: the message of one topic.
pub trait OneOf: Sized {
    /// A message of every topic.
    type Tuple;
    /// A message of some topics.
    type Partial;
    /// The number of topics.
    const TOPICS: usize;
    /// The topic of this message.
    fn topic(&self) -> usize;
    /// Makes a tuple of a set; `None` if the set does not have one message of every topic, in order.
    fn tuple(set: Vec<Stamped<Self>>) -> Option<Self::Tuple>;
    /// The same for a set that lacks topics.
    fn partial(set: Vec<Option<Stamped<Self>>>) -> Option<Self::Partial>;
}

/// A synchronizer whose sets are tuples.
///
/// ```
/// use asof_window::sync::{ApproximateTime, Of2, Typed};
///
/// let mut sync: Typed<Of2<&str, f64>, _> = Typed::new(ApproximateTime::new(2, 10));
/// let mut sets = Vec::new();
/// sync.add(100.into(), Of2::A("image"), &mut |a, b| sets.push((a.value, b.value)));
/// sync.add(101.into(), Of2::B(0.5), &mut |a, b| sets.push((a.value, b.value)));
/// sync.add(200.into(), Of2::A("next"), &mut |a, b| sets.push((a.value, b.value)));
/// assert_eq!(sets, [("image", 0.5)]);
/// ```
pub struct Typed<O, S> {
    inner: S,
    kind: std::marker::PhantomData<fn(O)>,
}

impl<O: OneOf, S: Synchronizer<O>> Typed<O, S> {
    /// Makes tuples of the sets of `synchronizer`, which should join [`OneOf::TOPICS`] topics.
    pub fn new(synchronizer: S) -> Self {
        Typed {
            inner: synchronizer,
            kind: std::marker::PhantomData,
        }
    }

    /// Adds a message; `emit` is called with every tuple that it completes.
    pub fn add_with(&mut self, stamp: Stamp, value: O, emit: &mut dyn FnMut(O::Tuple)) {
        let topic = value.topic();
        self.inner.add(topic, stamp, value, &mut |event| {
            if let SyncEvent::Matched(set) = event
                && let Some(tuple) = O::tuple(set)
            {
                emit(tuple);
            }
        });
    }

    /// The synchronizer inside, for its events with drops and reasons.
    pub fn inner(&mut self) -> &mut S {
        &mut self.inner
    }
}

macro_rules! one_of {
    ($name:ident, $count:literal, $($type:ident $value:ident $index:literal),+) => {
        #[doc = concat!("A message of one of ", $count, " topics.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum $name<$($type),+> {
            $($type($type)),+
        }

        impl<$($type),+> OneOf for $name<$($type),+> {
            type Tuple = ($(Stamped<$type>,)+);
            type Partial = ($(Option<Stamped<$type>>,)+);
            const TOPICS: usize = $count;

            fn topic(&self) -> usize {
                match self {
                    $(Self::$type(_) => $index),+
                }
            }

            fn tuple(set: Vec<Stamped<Self>>) -> Option<Self::Tuple> {
                let mut set = set.into_iter();
                $(
                    let $value = match set.next()? {
                        Stamped { stamp, value: Self::$type(value) } => Stamped { stamp, value },
                        _ => return None,
                    };
                )+
                set.next().is_none().then_some(($($value,)+))
            }

            fn partial(set: Vec<Option<Stamped<Self>>>) -> Option<Self::Partial> {
                let mut set = set.into_iter();
                $(
                    let $value = match set.next()? {
                        Some(Stamped { stamp, value: Self::$type(value) }) => Some(Stamped { stamp, value }),
                        Some(_) => return None,
                        None => None,
                    };
                )+
                set.next().is_none().then_some(($($value,)+))
            }
        }

        impl<$($type,)+ S: Synchronizer<$name<$($type),+>>> Typed<$name<$($type),+>, S> {
            /// Adds a message; `emit` is called with one argument per topic for every set that it completes.
            pub fn add(
                &mut self,
                stamp: Stamp,
                value: $name<$($type),+>,
                emit: &mut dyn FnMut($(Stamped<$type>),+),
            ) {
                self.add_with(stamp, value, &mut |($($value,)+)| emit($($value),+));
            }
        }
    };
}

one_of!(Of2, 2, A a 0, B b 1);
one_of!(Of3, 3, A a 0, B b 1, C c 2);
one_of!(Of4, 4, A a 0, B b 1, C c 2, D d 3);
one_of!(Of5, 5, A a 0, B b 1, C c 2, D d 3, E e 4);
one_of!(Of6, 6, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5);
one_of!(Of7, 7, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6);
one_of!(Of8, 8, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7);
one_of!(Of9, 9, A a 0, B b 1, C c 2, D d 3, E e 4, F f 5, G g 6, H h 7, I i 8);
