//! Plain old data.

use core::fmt;

/// A plain-old-data type: it may be copied byte by byte while it is written, and shared with other processes.
///
/// [`plain!`](crate::plain!) declares such a struct and checks it; numbers and arrays of plain types are plain.
///
/// # Safety
/// Every byte of a value is initialised (there is no padding), every pattern of bytes is a value, and the type
/// holds no pointer and nothing that needs dropping.
pub unsafe trait Plain: Copy + Send + Sync + 'static {
    /// The type's name in the header of a shared segment, the same in every language.
    const NAME: TypeName;
    /// A hash of the fields; 0 if unknown, which matches everything.
    const SHAPE: u64 = 0;
}

/// The name of a [`Plain`] type: up to 47 bytes of text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct TypeName {
    bytes: [u8; TypeName::ROOM],
}

impl TypeName {
    /// Bytes in a segment's header for a name, including at least one NUL.
    pub const ROOM: usize = 48;

    /// A name, truncated to fit.
    pub const fn new(text: &str) -> Self {
        let name = TypeName {
            bytes: [0; Self::ROOM],
        };
        name.then(text.as_bytes())
    }

    /// The name of an array of `count` of these, such as `f32*720`.
    #[must_use]
    pub const fn array(self, count: usize) -> Self {
        let mut digits = [0; 20];
        let mut first = digits.len();
        let mut rest = count;
        loop {
            first -= 1;
            digits[first] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.then(b"*").then(digits.split_at(first).1)
    }

    /// The name as in a segment's header, padded with zeros.
    pub const fn as_bytes(&self) -> &[u8; TypeName::ROOM] {
        &self.bytes
    }

    const fn len(&self) -> usize {
        let mut len = 0;
        while len < Self::ROOM && self.bytes[len] != 0 {
            len += 1;
        }
        len
    }

    const fn then(mut self, more: &[u8]) -> Self {
        let mut len = self.len();
        let mut taken = 0;
        while taken < more.len() && len < Self::ROOM - 1 {
            self.bytes[len] = more[taken];
            len += 1;
            taken += 1;
        }
        self
    }
}

impl fmt::Display for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(&self.bytes[..self.len()]).unwrap_or("(not text)"))
    }
}

impl fmt::Debug for TypeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

macro_rules! numbers {
    ($($number:ident)*) => {$(
        // SAFETY: a number has no padding, and every pattern of bits is one.
        unsafe impl Plain for $number {
            const NAME: TypeName = TypeName::new(stringify!($number));
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

// SAFETY: an array has no padding beyond its elements', which have none.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {
    const NAME: TypeName = T::NAME.array(N);
    const SHAPE: u64 = T::SHAPE;
}

/// The shape of a struct, field by field.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Shape(u64);

impl Shape {
    /// Without fields; FNV-1a, 64 bits.
    pub const EMPTY: Shape = Shape(0xcbf2_9ce4_8422_2325);

    /// With one more field.
    #[must_use]
    pub const fn with<T: Plain>(self, field: &str) -> Self {
        let named = self.hash(field.as_bytes()).hash(b":");
        let typed = named
            .hash(T::NAME.bytes.split_at(T::NAME.len()).0)
            .hash(b";");
        match T::SHAPE {
            0 => typed,
            inner => typed.hash(&inner.to_le_bytes()),
        }
    }

    /// As a number, never 0.
    pub const fn number(self) -> u64 {
        if self.0 == 0 { 1 } else { self.0 }
    }

    const fn hash(mut self, bytes: &[u8]) -> Self {
        let mut at = 0;
        while at < bytes.len() {
            self.0 = (self.0 ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
            at += 1;
        }
        self
    }
}

/// Declares plain-old-data structs: C layout, `Copy`, and [`Plain`].
///
/// Padding between the fields, or a field that is not plain, does not compile.
///
/// ```
/// asof_hot::plain! {
///     /// A velocity command.
///     #[derive(Debug, PartialEq)]
///     pub struct Command {
///         /// Forward velocity in m/s.
///         pub linear: f64,
///         /// Turn rate to the left in rad/s.
///         pub angular: f64,
///     }
/// }
/// # fn main() {
/// assert_eq!(<Command as asof_hot::Plain>::NAME.to_string(), "Command");
/// # }
/// ```
///
/// ```compile_fail
/// asof_hot::plain! {
///     /// Seven bytes of padding.
///     pub struct Holey { pub small: u8, pub large: u64 }
/// }
/// # fn main() {}
/// ```
#[macro_export]
macro_rules! plain {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
        }
    )*) => {$(
        $(#[$meta])*
        #[derive(Clone, Copy)]
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }

        const _: () = {
            const fn is_plain<T: $crate::Plain>() -> usize { ::core::mem::size_of::<T>() }
            assert!(
                ::core::mem::size_of::<$name>() == 0 $(+ is_plain::<$type>())*,
                "a plain struct may have no padding: order the fields by size, or fill the gap with a field"
            );
        };

        // SAFETY: every field is plain, and the fields fill the struct, as was just checked.
        #[allow(unsafe_code)]
        unsafe impl $crate::Plain for $name {
            const NAME: $crate::TypeName = $crate::TypeName::new(stringify!($name));
            const SHAPE: u64 = $crate::Shape::EMPTY
                $(.with::<$type>(stringify!($field)))*
                .number();
        }
    )*};
}
