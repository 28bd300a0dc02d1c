//! Resolves the names in an IDL text.

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Allowance, SchemaError};
use crate::model::{Case, Constant, Field, Kind, MessageType, Scalar, Struct};

use super::{Definition, Member, StructSyntax, TypeSyntax, UnionSyntax, parse_integer};

/// Converts definitions to types: names to indexes, constants to numbers.
pub(super) struct Resolver<'a> {
    pub definitions: &'a HashMap<String, Definition>,
    pub language: &'static str,
    pub types: MessageType,
    pub places: HashMap<String, usize>,
    /// The constants next to each struct, by the struct's full name.
    constants: HashMap<&'a str, Vec<Constant>>,
    depth: usize,
    /// Fields and parts of types.
    parts: Allowance,
}

/// The deepest nesting of types, with what their names stand for.
const DEPTH_AT_MOST: usize = 256;
/// The most fields and parts of types: a name that stands for two others doubles with each step.
const PARTS_AT_MOST: usize = 200_000;

impl<'a> Resolver<'a> {
    pub fn new(definitions: &'a HashMap<String, Definition>, language: &'static str) -> Self {
        Resolver {
            definitions,
            language,
            types: MessageType::default(),
            places: HashMap::new(),
            constants: constants_in(definitions),
            depth: 0,
            parts: Allowance::new(PARTS_AT_MOST, "parts of types"),
        }
    }

    /// Enters a type within another one.
    fn enter(&mut self) -> Result<(), SchemaError> {
        self.depth += 1;
        if self.depth > DEPTH_AT_MOST {
            return Err(SchemaError::TooLarge {
                reason: format!("types are nested more than {DEPTH_AT_MOST} levels deep"),
            });
        }
        self.parts.take(1)
    }

    /// The full name of `name`, seen from within `scope`.
    fn lookup(&self, name: &str, scope: &[String]) -> Option<String> {
        (0..=scope.len()).rev().find_map(|len| {
            let mut full = scope[..len].join("::");
            if len > 0 {
                full.push_str("::");
            }
            full.push_str(name);
            self.definitions.contains_key(&full).then_some(full)
        })
    }

    fn integer(&self, text: &str, scope: &[String]) -> Result<i64, SchemaError> {
        let mut text = text.trim().to_owned();
        for _ in 0..16 {
            if let Some(value) = parse_integer(&text) {
                return Ok(value);
            }
            match text.as_str() {
                "TRUE" | "true" => return Ok(1),
                "FALSE" | "false" => return Ok(0),
                _ => {}
            }
            if let [b'\'', byte, b'\''] = text.as_bytes() {
                return Ok(i64::from(*byte));
            }
            let found = self.lookup(&text.replace(' ', ""), scope);
            match found.and_then(|full| self.definitions.get(&full)) {
                Some(Definition::Constant(value)) => text.clone_from(value),
                _ => break,
            }
        }
        Err(SchemaError::Unreadable {
            language: self.language,
            reason: format!("'{text}' is not a known number"),
        })
    }

    pub fn structure(&mut self, full: &str) -> Result<usize, SchemaError> {
        if let Some(&place) = self.places.get(full) {
            return Ok(place);
        }
        self.enter()?;
        let place = self.types.structs.len();
        self.places.insert(full.to_owned(), place);
        self.types.structs.push(Struct {
            name: full.to_owned(),
            ..Struct::default()
        });
        let definitions = self.definitions;
        match definitions.get(full) {
            Some(Definition::Struct(syntax)) => self.fill_struct(place, full, syntax)?,
            Some(Definition::Union(syntax)) => self.fill_union(place, syntax)?,
            _ => {
                return Err(SchemaError::UnknownType {
                    name: full.to_owned(),
                    user: full.to_owned(),
                });
            }
        }
        self.depth -= 1;
        Ok(place)
    }

    fn fill_struct(
        &mut self,
        place: usize,
        full: &str,
        syntax: &StructSyntax,
    ) -> Result<(), SchemaError> {
        let mut fields = Vec::new();
        if let Some(base) = &syntax.base {
            let (kind, _) = self.kind(base, &syntax.scope)?;
            if let Kind::Struct(base) = kind {
                self.parts.take(self.types.structs[base].fields.len())?;
                fields.extend(self.types.structs[base].fields.iter().cloned());
            }
        }
        let mut next = fields
            .iter()
            .map(|field: &Field| field.number.wrapping_add(1))
            .max()
            .unwrap_or(0);
        for member in &syntax.members {
            let field = self.field(member, &syntax.scope, &mut next)?;
            fields.push(field);
        }
        let constants = self.constants.remove(full).unwrap_or_default();
        let target = &mut self.types.structs[place];
        target.fields = fields;
        target.extensibility = syntax.extensibility;
        target.constants = constants;
        Ok(())
    }

    fn fill_union(&mut self, place: usize, syntax: &UnionSyntax) -> Result<(), SchemaError> {
        let (kind, _) = self.kind(&syntax.discriminator, &syntax.scope)?;
        let mut fields = vec![Field::new("_d", kind)];
        let mut cases = Vec::new();
        let mut next = 1;
        for (labels, is_default, member) in &syntax.members {
            let labels: Result<Vec<i64>, SchemaError> = labels
                .iter()
                .map(|label| self.integer(label, &syntax.scope))
                .collect();
            cases.push(Case {
                labels: labels?,
                is_default: *is_default,
            });
            fields.push(self.field(member, &syntax.scope, &mut next)?);
        }
        let target = &mut self.types.structs[place];
        target.fields = fields;
        target.cases = Some(cases);
        target.extensibility = syntax.extensibility;
        Ok(())
    }

    fn field(
        &mut self,
        member: &Member,
        scope: &[String],
        next: &mut u32,
    ) -> Result<Field, SchemaError> {
        let (kind, bound) = self.kind(&member.kind, scope)?;
        let number = member.id.unwrap_or(*next);
        *next = number.wrapping_add(1);
        Ok(Field {
            name: member.name.clone(),
            kind,
            is_optional: member.is_optional,
            number,
            oneof: None,
            default: member.default.clone(),
            bound,
        })
    }

    fn kind(
        &mut self,
        syntax: &TypeSyntax,
        scope: &[String],
    ) -> Result<(Kind, Option<u64>), SchemaError> {
        self.enter()?;
        let kind = self.kind_within(syntax, scope)?;
        self.depth -= 1;
        Ok(kind)
    }

    fn kind_within(
        &mut self,
        syntax: &TypeSyntax,
        scope: &[String],
    ) -> Result<(Kind, Option<u64>), SchemaError> {
        let bound_of = |resolver: &Self, bound: &Option<String>| {
            bound
                .as_ref()
                .map(|bound| {
                    resolver
                        .integer(bound, scope)
                        .map(|bound| bound.max(0) as u64)
                })
                .transpose()
        };
        Ok(match syntax {
            TypeSyntax::Scalar(scalar) => (Kind::Scalar(*scalar), None),
            TypeSyntax::Byte => (Kind::Scalar(Scalar::Uint8), None),
            TypeSyntax::Text(bound) => (Kind::Text, bound_of(self, bound)?),
            TypeSyntax::WideText(bound) => (Kind::WideText, bound_of(self, bound)?),
            TypeSyntax::Sequence(item, bound) => {
                let bound = bound_of(self, bound)?;
                let (item, _) = self.kind(item, scope)?;
                let kind = if item == Kind::Scalar(Scalar::Uint8) {
                    Kind::Blob
                } else {
                    Kind::List(Box::new(item))
                };
                (kind, bound)
            }
            TypeSyntax::Map(key, value) => {
                let (key, _) = self.kind(key, scope)?;
                let (value, _) = self.kind(value, scope)?;
                (Kind::Map(Box::new(key), Box::new(value)), None)
            }
            TypeSyntax::Array(item, len) => {
                let len = self.integer(len, scope)?;
                let len = u32::try_from(len).map_err(|_| SchemaError::TooLarge {
                    reason: format!("an array of {len} elements"),
                })?;
                let (item, _) = self.kind(item, scope)?;
                let kind = if item == Kind::Scalar(Scalar::Uint8) {
                    Kind::FixedBlob(len)
                } else {
                    Kind::Array(Box::new(item), len)
                };
                (kind, None)
            }
            TypeSyntax::Named(name, scope) => return self.named(name, scope),
        })
    }

    fn named(&mut self, name: &str, scope: &[String]) -> Result<(Kind, Option<u64>), SchemaError> {
        let missing = || SchemaError::UnknownType {
            name: name.to_owned(),
            user: scope.join("::"),
        };
        let full = self.lookup(name, scope).ok_or_else(missing)?;
        let definitions = self.definitions;
        match definitions.get(&full) {
            Some(Definition::Struct(_) | Definition::Union(_)) => {
                Ok((Kind::Struct(self.structure(&full)?), None))
            }
            Some(Definition::Enum(names)) => Ok((Kind::Enum(Arc::clone(names)), None)),
            Some(Definition::Typedef(kind, scope)) => self.kind(kind, scope),
            _ => Err(missing()),
        }
    }
}

/// rosidl writes a message's constants into a module next to it: those of `pkg::msg::Thing` into
/// `pkg::msg::Thing_Constants`.
fn constants_in(definitions: &HashMap<String, Definition>) -> HashMap<&str, Vec<Constant>> {
    let mut all: HashMap<&str, Vec<Constant>> = HashMap::new();
    for (name, definition) in definitions {
        let Definition::Constant(value) = definition else {
            continue;
        };
        if let Some((full, name)) = name.rsplit_once("_Constants::") {
            all.entry(full).or_default().push(Constant {
                name: name.to_owned(),
                kind: String::new(),
                value: value.clone(),
            });
        }
    }
    for constants in all.values_mut() {
        constants.sort_by(|a, b| a.name.cmp(&b.name));
    }
    all
}
