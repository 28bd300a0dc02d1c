//! OMG IDL, as written by DDS recorders and rosbag2: modules, structs, unions, enums, typedefs, constants.

mod resolve;

use std::collections::HashMap;
use std::sync::Arc;

use crate::error::{Allowance, SchemaError};
use crate::model::{Enumeration, Extensibility, MessageType, Scalar};

use super::idl_tokens::{Token, Tokens, tokens};
use resolve::Resolver;

/// Parses the definition of `name` in a text that may define more.
pub(crate) fn parse(
    name: &str,
    text: &str,
    language: &'static str,
) -> Result<MessageType, SchemaError> {
    let mut parser = Parser {
        tokens: tokens(text, language)?,
        language,
        scope: Scope::default(),
        names: Allowance::new(NAMES_AT_MOST, "bytes of names"),
        definitions: HashMap::new(),
        order: Vec::new(),
    };
    parser.definitions_until_end(0)?;
    let wanted = name.replace('/', "::");
    let root = find_root(&wanted, &parser).ok_or_else(|| SchemaError::UnknownType {
        name: wanted.clone(),
        user: name.to_owned(),
    })?;
    let mut resolver = Resolver::new(&parser.definitions, language);
    let root = resolver.structure(&root)?;
    resolver.types.root = root;
    Ok(resolver.types)
}

/// The struct of that name, or the only one whose name ends with it; else the last that is defined.
fn find_root(wanted: &str, parser: &Parser) -> Option<String> {
    let is_struct = |name: &&String| {
        matches!(
            parser.definitions.get(*name),
            Some(Definition::Struct(_) | Definition::Union(_))
        )
    };
    let ends_so = |name: &&String| {
        name.strip_suffix(wanted)
            .is_some_and(|rest| rest.is_empty() || rest.ends_with("::"))
    };
    parser
        .order
        .iter()
        .filter(is_struct)
        .find(|name| *name == wanted)
        .or_else(|| parser.order.iter().filter(is_struct).find(ends_so))
        .cloned()
}

/// The names of the modules around something, shared by all that is in them.
type Scope = Arc<[String]>;

enum Definition {
    Struct(StructSyntax),
    Union(UnionSyntax),
    Enum(Arc<Enumeration>),
    Typedef(TypeSyntax, Scope),
    Constant(String),
}

struct StructSyntax {
    scope: Scope,
    base: Option<TypeSyntax>,
    members: Vec<Member>,
    extensibility: Option<Extensibility>,
}

struct UnionSyntax {
    scope: Scope,
    discriminator: TypeSyntax,
    members: Vec<(Vec<String>, bool, Member)>,
    extensibility: Option<Extensibility>,
}

struct Member {
    name: String,
    kind: TypeSyntax,
    is_optional: bool,
    id: Option<u32>,
    default: Option<String>,
}

#[derive(Clone)]
enum TypeSyntax {
    Scalar(Scalar),
    /// A byte under another name than a number's.
    Byte,
    Text(Option<String>),
    WideText(Option<String>),
    Sequence(Arc<TypeSyntax>, Option<String>),
    Map(Arc<TypeSyntax>, Arc<TypeSyntax>),
    Array(Arc<TypeSyntax>, String),
    Named(String, Scope),
}

#[derive(Default)]
struct Annotations(Vec<(String, String)>);

impl Annotations {
    fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    fn extensibility(&self) -> Option<Extensibility> {
        let named = |word: &str| match word.to_ascii_lowercase().as_str() {
            "final" | "final_extensibility" => Some(Extensibility::Final),
            "appendable" | "extensible_extensibility" => Some(Extensibility::Appendable),
            "mutable" | "mutable_extensibility" => Some(Extensibility::Mutable),
            _ => None,
        };
        self.get("extensibility").and_then(named).or_else(|| {
            ["final", "appendable", "mutable"]
                .into_iter()
                .find(|w| self.get(w).is_some())
                .and_then(named)
        })
    }

    fn is_optional(&self) -> bool {
        self.get("optional")
            .is_some_and(|value| !value.eq_ignore_ascii_case("false"))
    }

    fn id(&self) -> Option<u32> {
        parse_integer(self.get("id")?).and_then(|id| u32::try_from(id).ok())
    }

    fn default_value(&self) -> Option<String> {
        let text = self.get("default")?;
        let text = text
            .strip_prefix("value")
            .map_or(text, |rest| rest.trim_start_matches([' ', '=']));
        Some(text.trim().to_owned())
    }
}

struct Parser {
    tokens: Tokens,
    language: &'static str,
    scope: Scope,
    definitions: HashMap<String, Definition>,
    /// The structs and unions.
    order: Vec<String>,
    /// The bytes of all full names.
    names: Allowance,
}

const MODULES_AT_MOST: usize = 64;
/// The longest name of a module with those around it: each definition within it has that name.
const SCOPE_AT_MOST: usize = 512;
const NAMES_AT_MOST: usize = 16 << 20;
const DIMENSIONS_AT_MOST: usize = 32;

impl Parser {
    fn error(&self, reason: impl Into<String>) -> SchemaError {
        SchemaError::Syntax {
            language: self.language,
            line: self.tokens.line(),
            reason: reason.into(),
        }
    }

    fn expect(&mut self, symbol: &str) -> Result<(), SchemaError> {
        if self.tokens.eat(symbol) {
            Ok(())
        } else {
            let found = self.tokens.peek_text();
            Err(self.error(format!("expected '{symbol}', found '{found}'")))
        }
    }

    fn name(&mut self) -> Result<String, SchemaError> {
        match self.tokens.advance() {
            Some(Token::Word(word)) => Ok(word),
            other => Err(self.error(format!(
                "expected a name, found '{}'",
                other.map_or(String::new(), |token| token.to_string())
            ))),
        }
    }

    fn full_name(&self, name: &str) -> String {
        let mut full = self.scope.join("::");
        if !full.is_empty() {
            full.push_str("::");
        }
        full + name
    }

    fn define(&mut self, name: &str, definition: Definition) -> Result<(), SchemaError> {
        let full = self.full_name(name);
        self.names.take(full.len())?;
        if matches!(definition, Definition::Struct(_) | Definition::Union(_)) {
            self.order.push(full.clone());
        }
        self.definitions.insert(full, definition);
        Ok(())
    }

    /// Definitions up to the end of the text, or of the open module.
    fn definitions_until_end(&mut self, depth: usize) -> Result<(), SchemaError> {
        loop {
            if self.tokens.is_at_end() {
                return if depth == 0 {
                    Ok(())
                } else {
                    Err(self.error("a module is not closed"))
                };
            }
            if depth > 0 && self.tokens.peek_is("}") {
                return Ok(());
            }
            let annotations = self.annotations()?;
            if self.tokens.eat(";") {
                continue;
            }
            let word = self.name()?;
            match word.as_str() {
                "module" => {
                    if depth >= MODULES_AT_MOST {
                        return Err(self.error("modules are nested too deeply"));
                    }
                    let name = self.name()?;
                    self.expect("{")?;
                    if self.full_name(&name).len() > SCOPE_AT_MOST {
                        return Err(self.error("the name of a module is too long"));
                    }
                    let inner = self.scope.iter().cloned().chain([name]).collect();
                    let outer = std::mem::replace(&mut self.scope, inner);
                    self.definitions_until_end(depth + 1)?;
                    self.scope = outer;
                    self.expect("}")?;
                }
                "struct" => self.structure(&annotations)?,
                "union" => self.union(&annotations)?,
                "enum" => self.enumeration(&annotations)?,
                "bitmask" => self.bitmask(&annotations)?,
                "typedef" => {
                    let kind = self.kind(0)?;
                    loop {
                        let (name, kind) = self.declarator(kind.clone())?;
                        let scope = self.scope.clone();
                        self.define(&name, Definition::Typedef(kind, scope))?;
                        if !self.tokens.eat(",") {
                            break;
                        }
                    }
                }
                "const" => {
                    self.kind(0)?;
                    let name = self.name()?;
                    self.expect("=")?;
                    let value = self.tokens.text_until(&[";"]);
                    self.define(&name, Definition::Constant(value))?;
                }
                other => return Err(self.error(format!("unexpected '{other}'"))),
            }
            self.expect(";")?;
        }
    }

    fn annotations(&mut self) -> Result<Annotations, SchemaError> {
        let mut found = Annotations::default();
        while self.tokens.eat("@") {
            let mut name = self.name()?;
            while self.tokens.eat("::") {
                name = self.name()?;
            }
            let value = if self.tokens.eat("(") {
                let value = self.tokens.text_until(&[")"]);
                self.expect(")")?;
                value
            } else {
                String::new()
            };
            found.0.push((name, value));
        }
        Ok(found)
    }

    fn structure(&mut self, annotations: &Annotations) -> Result<(), SchemaError> {
        let name = self.name()?;
        if self.tokens.peek_is(";") {
            return Ok(());
        }
        let base = if self.tokens.eat(":") {
            Some(self.kind(0)?)
        } else {
            None
        };
        self.expect("{")?;
        let mut members = Vec::new();
        while !self.tokens.eat("}") {
            let annotations = self.annotations()?;
            let kind = self.kind(0)?;
            loop {
                members.push(self.member(kind.clone(), &annotations)?);
                if !self.tokens.eat(",") {
                    break;
                }
            }
            self.expect(";")?;
        }
        let definition = StructSyntax {
            scope: self.scope.clone(),
            base,
            members,
            extensibility: annotations.extensibility(),
        };
        self.define(&name, Definition::Struct(definition))
    }

    fn union(&mut self, annotations: &Annotations) -> Result<(), SchemaError> {
        let name = self.name()?;
        if self.tokens.peek_is(";") {
            return Ok(());
        }
        self.expect("switch")?;
        self.expect("(")?;
        self.annotations()?;
        let discriminator = self.kind(0)?;
        self.expect(")")?;
        self.expect("{")?;
        let mut members = Vec::new();
        while !self.tokens.eat("}") {
            let (mut labels, mut is_default) = (Vec::new(), false);
            loop {
                if self.tokens.eat("case") {
                    labels.push(self.tokens.text_until(&[":"]));
                } else if self.tokens.eat("default") {
                    is_default = true;
                } else {
                    break;
                }
                self.expect(":")?;
            }
            let annotations = self.annotations()?;
            let kind = self.kind(0)?;
            let member = Member {
                is_optional: true,
                default: None,
                ..self.member(kind, &annotations)?
            };
            members.push((labels, is_default, member));
            self.expect(";")?;
        }
        let definition = UnionSyntax {
            scope: self.scope.clone(),
            discriminator,
            members,
            extensibility: annotations.extensibility(),
        };
        self.define(&name, Definition::Union(definition))
    }

    fn member(
        &mut self,
        kind: TypeSyntax,
        annotations: &Annotations,
    ) -> Result<Member, SchemaError> {
        let (name, kind) = self.declarator(kind)?;
        Ok(Member {
            name,
            kind,
            is_optional: annotations.is_optional(),
            id: annotations.id(),
            default: annotations.default_value(),
        })
    }

    fn enumeration(&mut self, annotations: &Annotations) -> Result<(), SchemaError> {
        let name = self.name()?;
        self.expect("{")?;
        let mut values = Vec::new();
        let mut next = 0;
        while !self.tokens.eat("}") {
            let annotations = self.annotations()?;
            let value = self.name()?;
            if let Some(number) = annotations.get("value").and_then(parse_integer) {
                next = number;
            }
            values.push((next, value));
            next = next.wrapping_add(1);
            if !self.tokens.eat(",") {
                self.expect("}")?;
                break;
            }
        }
        for (number, value) in &values {
            self.define(value, Definition::Constant(number.to_string()))?;
        }
        let scalar = match annotations.get("bit_bound").and_then(parse_integer) {
            Some(1..=8) => Scalar::Int8,
            Some(9..=16) => Scalar::Int16,
            _ => Scalar::Int32,
        };
        let full = self.full_name(&name);
        let definition = Arc::new(Enumeration::new(full, values, scalar));
        self.define(&name, Definition::Enum(definition))
    }

    /// A bitmask is the number that holds it.
    fn bitmask(&mut self, annotations: &Annotations) -> Result<(), SchemaError> {
        let name = self.name()?;
        self.expect("{")?;
        self.tokens.text_until(&["}"]);
        self.expect("}")?;
        let scalar = match annotations.get("bit_bound").and_then(parse_integer) {
            Some(1..=8) => Scalar::Uint8,
            Some(9..=16) => Scalar::Uint16,
            Some(33..=64) => Scalar::Uint64,
            _ => Scalar::Uint32,
        };
        let scope = self.scope.clone();
        self.define(
            &name,
            Definition::Typedef(TypeSyntax::Scalar(scalar), scope),
        )
    }

    /// A name, followed by the lengths of an array.
    fn declarator(&mut self, kind: TypeSyntax) -> Result<(String, TypeSyntax), SchemaError> {
        let name = self.name()?;
        let mut lengths = Vec::new();
        while self.tokens.eat("[") {
            lengths.push(self.tokens.text_until(&["]"]));
            self.expect("]")?;
            if lengths.len() > DIMENSIONS_AT_MOST {
                return Err(self.error("an array has too many dimensions"));
            }
        }
        let kind = lengths
            .into_iter()
            .rev()
            .fold(kind, |kind, len| TypeSyntax::Array(Arc::new(kind), len));
        Ok((name, kind))
    }

    // A match arm for each word, although some mean the same.
    #[allow(clippy::match_same_arms)]
    fn kind(&mut self, depth: usize) -> Result<TypeSyntax, SchemaError> {
        if depth > 16 {
            return Err(self.error("a type is nested too deeply"));
        }
        if self.tokens.eat("::") {
            return self.named(String::new());
        }
        let word = self.name()?;
        Ok(TypeSyntax::Scalar(match word.as_str() {
            "boolean" => Scalar::Bool,
            "octet" | "char" | "uint8" => return Ok(TypeSyntax::Byte),
            "int8" => Scalar::Int8,
            "short" | "int16" => Scalar::Int16,
            "uint16" | "wchar" => Scalar::Uint16,
            "int32" => Scalar::Int32,
            "uint32" => Scalar::Uint32,
            "int64" => Scalar::Int64,
            "uint64" => Scalar::Uint64,
            "float" => Scalar::Float32,
            "double" => Scalar::Float64,
            "long" if self.tokens.eat("long") => Scalar::Int64,
            "long" if self.tokens.peek_is("double") => {
                return Err(self.error("'long double' is not supported"));
            }
            "long" => Scalar::Int32,
            "unsigned" => match self.name()?.as_str() {
                "short" => Scalar::Uint16,
                "long" if self.tokens.eat("long") => Scalar::Uint64,
                "long" => Scalar::Uint32,
                other => return Err(self.error(format!("'unsigned {other}' is not a type"))),
            },
            "string" => return Ok(TypeSyntax::Text(self.bound()?)),
            "wstring" => return Ok(TypeSyntax::WideText(self.bound()?)),
            "sequence" => {
                self.expect("<")?;
                let item = self.kind(depth + 1)?;
                let bound = if self.tokens.eat(",") {
                    Some(self.tokens.text_until(&[">"]))
                } else {
                    None
                };
                self.expect(">")?;
                return Ok(TypeSyntax::Sequence(Arc::new(item), bound));
            }
            "map" => {
                self.expect("<")?;
                let key = self.kind(depth + 1)?;
                self.expect(",")?;
                let value = self.kind(depth + 1)?;
                if self.tokens.eat(",") {
                    self.tokens.text_until(&[">"]);
                }
                self.expect(">")?;
                return Ok(TypeSyntax::Map(Arc::new(key), Arc::new(value)));
            }
            _ => return self.named(word),
        }))
    }

    fn named(&mut self, first: String) -> Result<TypeSyntax, SchemaError> {
        let mut name = if first.is_empty() {
            self.name()?
        } else {
            first
        };
        while self.tokens.eat("::") {
            name.push_str("::");
            name.push_str(&self.name()?);
        }
        Ok(TypeSyntax::Named(name, self.scope.clone()))
    }

    fn bound(&mut self) -> Result<Option<String>, SchemaError> {
        if !self.tokens.eat("<") {
            return Ok(None);
        }
        let bound = self.tokens.text_until(&[">"]);
        self.expect(">")?;
        Ok(Some(bound))
    }
}

fn parse_integer(text: &str) -> Option<i64> {
    let text = text.trim();
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Kind;

    const TEXT: &str = r#"
        // generated from rosidl
        #include "other.idl"
        module pkg { module msg {
          typedef double double__3[3];
          module Thing_Constants { const uint8 DEBUG = 10; };
          enum Color { RED, @value(5) GREEN, BLUE };
          @verbatim (language="comment", text="a ; b } c")
          @final struct Inner { octet id[4]; sequence<string, 3> names; };
          union Choice switch (long) { case 1: case 2: long a; default: string b; };
          @mutable struct Thing {
            @id(7) @optional float x;
            double__3 position; Color color; Inner inner, other;
            unsigned long long big; wstring<8> wide; long grid[2][3];
          };
        }; };
    "#;

    #[test]
    fn modules_typedefs_enums_unions_and_annotations_are_read() {
        let types = parse("pkg/msg/Thing", TEXT, "ros2idl").expect("reads");
        let root = types.root();
        assert_eq!(root.extensibility, Some(Extensibility::Mutable));
        assert_eq!(root.constants[0].value, "10");
        let names: Vec<_> = root
            .fields
            .iter()
            .map(|f| (f.name.as_str(), f.number))
            .collect();
        assert_eq!(names[..3], [("x", 7), ("position", 8), ("color", 9)]);
        assert!(root.fields[0].is_optional);
        assert_eq!(
            root.fields[1].kind,
            Kind::Array(Box::new(Kind::Scalar(Scalar::Float64)), 3)
        );
        let Kind::Enum(color) = &root.fields[2].kind else {
            panic!("an enum")
        };
        assert_eq!(color.name_of(6), Some("BLUE"));
        assert_eq!(root.fields[6].bound, Some(8));
    }

    #[test]
    fn a_union_knows_its_labels() {
        let types = parse("pkg::msg::Choice", TEXT, "omgidl").expect("reads");
        let cases = types.root().cases.as_ref().expect("cases");
        assert_eq!(cases[0].labels, [1, 2]);
        assert!(cases[1].is_default);
    }
}
