//! The plan for each field of a protobuf message, made once from its type and its layout.

use crate::layout::{Group, Node, Shape};
use crate::model::Kind;
use crate::schema::proto::{ProtoTypes, WireKind};

/// The plan for each field of one struct.
#[derive(Debug)]
pub(super) struct Plan {
    pub slots: Vec<Slot>,
    /// Slot by field number, plus one; larger numbers are searched in `far`.
    near: Vec<u32>,
    far: rustc_hash::FxHashMap<u32, u32>,
    /// How many oneofs the slots belong to.
    pub oneofs: usize,
    /// How many values it takes where all fields are absent.
    pub size: usize,
}

#[derive(Debug)]
pub(super) struct Slot {
    pub number: u32,
    pub wire: WireKind,
    pub act: Act,
    pub presence: Option<usize>,
    /// Its oneof, counted from 0.
    pub oneof: Option<u32>,
    /// The slot's columns, for filling in and removing values.
    pub node: Option<Node>,
}

#[derive(Debug)]
pub(super) enum Act {
    Skip,
    One(Target),
    /// Column of ends, and the element.
    Many(usize, Target),
    Map(usize, Box<Plan>),
}

#[derive(Debug)]
pub(super) enum Target {
    W1(usize),
    W4(usize),
    W8(usize),
    Text(usize),
    Blob(usize),
    Message(Box<Plan>),
    /// A message of floats that becomes one array.
    Vector(Vector),
    /// A message of the struct with this number, as JSON text.
    Json(usize, usize),
}

impl Target {
    /// Whether it is read from the bytes of a message.
    pub fn is_message(&self) -> bool {
        matches!(
            self,
            Target::Message(_) | Target::Vector(_) | Target::Json(..)
        )
    }
}

/// A message of floats: its field numbers, in the order of the array.
#[derive(Debug)]
pub(super) struct Vector {
    pub numbers: Vec<u32>,
    pub is_double: bool,
    pub column: usize,
}

/// Field numbers below this are looked up in an array.
const NEAR_AT_MOST: u32 = 128;

pub(super) fn compile(types: &ProtoTypes, group: &Group) -> Plan {
    let declared = &types.types.structs[group.id];
    let mut slots = Vec::with_capacity(declared.fields.len());
    for (at, field) in declared.fields.iter().enumerate() {
        let node = group.fields[at].as_ref();
        let wire = types.wires[group.id][at];
        let act = match (&field.kind, node) {
            (_, None) => Act::Skip,
            (Kind::List(item), Some(node)) => match &node.shape {
                Shape::List(ends, inner) => Act::Many(*ends, target(types, item, inner)),
                _ => Act::Skip,
            },
            (Kind::Map(key, value), Some(node)) => match &node.shape {
                Shape::Map(ends, key_node, value_node) => {
                    let (key_wire, value_wire) = types
                        .maps
                        .get(&(group.id, at))
                        .copied()
                        .unwrap_or((WireKind::Bytes, WireKind::Bytes));
                    let entry = Plan::new(vec![
                        Slot::single(1, key_wire, target(types, key, key_node), key_node),
                        Slot::single(2, value_wire, target(types, value, value_node), value_node),
                    ]);
                    Act::Map(*ends, Box::new(entry))
                }
                _ => Act::Skip,
            },
            (kind, Some(node)) => Act::One(target(types, kind, node)),
        };
        slots.push(Slot {
            number: field.number,
            wire,
            act,
            presence: node.and_then(|node| node.presence),
            oneof: field.oneof,
            node: node.cloned(),
        });
    }
    Plan::new(slots)
}

fn target(types: &ProtoTypes, kind: &Kind, node: &Node) -> Target {
    match (&node.shape, kind) {
        (Shape::Scalar(scalar, column), _) => match scalar.width() {
            1 => Target::W1(*column),
            4 => Target::W4(*column),
            _ => Target::W8(*column),
        },
        (Shape::Enum(_, column), _) => Target::W4(*column),
        (Shape::Text(column), _) => Target::Text(*column),
        (Shape::Blob(column), _) => Target::Blob(*column),
        (Shape::Json(column), Kind::Struct(id)) => Target::Json(*column, *id),
        (Shape::Array(_, item), Kind::Struct(id)) => Target::Vector(Vector {
            numbers: types.types.structs[*id]
                .fields
                .iter()
                .map(|field| field.number)
                .collect(),
            is_double: item.width() == Some(8),
            column: item.column().unwrap_or(0),
        }),
        (Shape::Struct(group), _) => Target::Message(Box::new(compile(types, group))),
        // A protobuf schema has no other shape.
        (_, _) => Target::Text(node.column().unwrap_or(0)),
    }
}

impl Slot {
    fn single(number: u32, wire: WireKind, target: Target, node: &Node) -> Self {
        Slot {
            number,
            wire,
            act: Act::One(target),
            presence: None,
            oneof: None,
            node: Some(node.clone()),
        }
    }
}

impl Plan {
    fn new(mut slots: Vec<Slot>) -> Self {
        let mut near = vec![0; 16];
        let mut far = rustc_hash::FxHashMap::default();
        for (at, slot) in slots.iter().enumerate() {
            let place = at as u32 + 1;
            if slot.number < NEAR_AT_MOST {
                let number = slot.number as usize;
                if near.len() <= number {
                    near.resize(number + 1, 0);
                }
                near[number] = place;
            } else {
                far.insert(slot.number, place);
            }
        }
        let mut oneofs = rustc_hash::FxHashMap::default();
        for oneof in slots.iter_mut().filter_map(|slot| slot.oneof.as_mut()) {
            let next = oneofs.len() as u32;
            *oneof = *oneofs.entry(*oneof).or_insert(next);
        }
        let oneofs = oneofs.len();
        let nodes = slots.iter().filter_map(|slot| slot.node.as_ref());
        let size = nodes
            .map(Node::fill_size)
            .fold(1 + oneofs, usize::saturating_add);
        Plan {
            slots,
            near,
            far,
            oneofs,
            size,
        }
    }

    #[inline]
    pub fn slot(&self, number: u32) -> Option<usize> {
        let place = match self.near.get(number as usize) {
            Some(&place) => place,
            None if self.far.is_empty() => 0,
            None => self.far.get(&number).copied().unwrap_or(0),
        };
        (place as usize).checked_sub(1)
    }
}
