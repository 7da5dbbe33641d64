//! The world that a core module says it was built for, against ours.
//!
//! A core module carries its WIT world in custom sections. wit-component would believe them; what it
//! builds from a damaged or hostile one can send it into endless recursion, which ends the process and not only
//! the load. So the sections are decoded on their own, compared with `wit/job.wit` type by type, and then
//! replaced by our own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use wasmparser::{Parser, Payload};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::{Function, Interface, Resolve, Type, TypeDefKind, WorldId, WorldItem};

use super::{LoadError, Role};

/// The interface between host and handler.
pub(super) const JOB_WIT: &str = include_str!("../../../wit/job.wit");
/// `wasi:cli/exit` as the adapter knows it: see `sections`.
const EXIT_WIT: &str = "
    package hourhand:exit;
    world exits { import wasi:cli/exit@0.2.12; }
    package wasi:cli@0.2.12 {
        interface exit {
            exit: func(status: result);
            exit-with-code: func(status-code: u8);
        }
    }";
/// All of WASI: what a module imports of it directly is checked against these.
const WASI_WIT: [(&str, &str); 8] = [
    ("io.wit", include_str!("../../../wit/wasi/deps/io.wit")),
    ("clocks.wit", include_str!("../../../wit/wasi/deps/clocks.wit")),
    ("random.wit", include_str!("../../../wit/wasi/deps/random.wit")),
    ("filesystem.wit", include_str!("../../../wit/wasi/deps/filesystem.wit")),
    ("sockets.wit", include_str!("../../../wit/wasi/deps/sockets.wit")),
    ("cli.wit", include_str!("../../../wit/wasi/deps/cli.wit")),
    ("http.wit", include_str!("../../../wit/wasi/deps/http.wit")),
    ("world.wit", include_str!("../../../wit/wasi/world.wit")),
];
/// The version of WASI that these are: 0.2 and this.
pub(super) const WASI_PATCH: u32 = 12;
/// The SDK's section has 773 bytes.
const SECTION_BYTES_MAX: usize = 64 << 10;
const HANDLER: &str = "hourhand:job/handler";
/// What the host offers.
const OFFERED: [&str; 3] = ["hourhand:job/host", "hourhand:job/jobs", "hourhand:job/state"];

/// What a module imports beside what is ours and what preview 1 has.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Needs {
    /// `wasi:cli/exit`, in place of `proc_exit`.
    pub(super) exit: bool,
    /// Something of WASI 0.2.
    pub(super) wasi: bool,
}

struct World {
    resolve: Resolve,
    id: WorldId,
}

/// Our own, which parses: a test sees to it.
static JOB: LazyLock<Result<World, String>> = LazyLock::new(|| parsed(JOB_WIT, "job-handler"));
static EXIT: LazyLock<Result<World, String>> = LazyLock::new(|| parsed(EXIT_WIT, "exits"));

static WASI: LazyLock<Result<World, String>> = LazyLock::new(|| parsed_all(&WASI_WIT, "imports"));

fn parsed(wit: &str, world: &str) -> Result<World, String> {
    parsed_all(&[("job.wit", wit)], world)
}

/// The world of the last of these, each of which needs only those before it.
fn parsed_all(files: &[(&str, &str)], world: &str) -> Result<World, String> {
    let mut resolve = Resolve::default();
    let mut last = None;
    for (name, wit) in files {
        last = Some(resolve.push_str(name, wit).map_err(|error| format!("{error:#}"))?);
    }
    let id = resolve.select_world(last.as_slice(), Some(world)).map_err(|error| format!("{error:#}"))?;
    Ok(World { resolve, id })
}

fn trusted(world: &'static LazyLock<Result<World, String>>) -> Result<&'static World, LoadError> {
    world.as_ref().map_err(|error| LoadError::Compile(error.clone()))
}

/// Adds our world to a handler's core module, which has none, and to any what it needs of WASI. (All of that has `wasi:cli/exit` too.)
pub(super) fn embed(module: &mut Vec<u8>, role: Role, needs: Needs) -> Result<(), LoadError> {
    let job = if role == Role::Handler { Some(trusted(&JOB)?) } else { None };
    let wasi = match needs {
        Needs { wasi: true, .. } => Some(trusted(&WASI)?),
        Needs { exit: true, .. } => Some(trusted(&EXIT)?),
        Needs { .. } => None,
    };
    for world in [job, wasi].into_iter().flatten() {
        embed_component_metadata(module, &world.resolve, world.id, StringEncoding::UTF8)
            .map_err(|error| LoadError::Compile(format!("{error:#}")))?;
    }
    Ok(())
}

/// Refuses a module whose world is not ours: one of its sections must export our handler, with our types.
pub(super) fn check(sections: &[&[u8]]) -> Result<(), LoadError> {
    let ours = trusted(&JOB)?;
    if sections.is_empty() {
        return refused(
            "it exports a handler but carries no WIT world: was it stripped of all custom sections? \
             Keep `component-type` (strip = true in Cargo's release profile does)",
        );
    }
    for section in sections {
        if section.len() > SECTION_BYTES_MAX {
            return refused("its WIT world is larger than any should be");
        }
        let theirs = catch_unwind(AssertUnwindSafe(|| wit_parser::decoding::decode_world(section)));
        let theirs = match theirs {
            Ok(Ok((resolve, id))) => World { resolve, id },
            Ok(Err(error)) => return refused(&format!("its WIT world does not decode: {error:#}")),
            Err(_) => return refused("its WIT world does not decode"),
        };
        if let Some(handler) = interface(&theirs, HANDLER, Side::Export) {
            is_utf8(section)?;
            return same(&theirs, handler, ours);
        }
    }
    refused("its WIT world does not export hourhand:job/handler")
}

fn refused<T>(what: &str) -> Result<T, LoadError> {
    Err(LoadError::Refused(format!("{what}; build it with the hourhand-sdk of this runner's version")))
}

/// Strings cross as UTF-8, as in all languages' bindings by default.
fn is_utf8(section: &[u8]) -> Result<(), LoadError> {
    const ENCODING_SECTION: &str = "wit-component-encoding";
    let encodings = Parser::new(0).parse_all(section).filter_map(|payload| match payload {
        Ok(Payload::CustomSection(custom)) if custom.name() == ENCODING_SECTION => {
            custom.data().get(1).copied()
        }
        _ => None,
    });
    match encodings.last() {
        Some(0) => Ok(()),
        _ => refused("its strings are not UTF-8"),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Import,
    Export,
}

/// The interface of this name without its version, on this side of the world.
fn interface<'a>(world: &'a World, name: &str, side: Side) -> Option<&'a Interface> {
    let items = match side {
        Side::Import => &world.resolve.worlds[world.id].imports,
        Side::Export => &world.resolve.worlds[world.id].exports,
    };
    items.values().find_map(|item| {
        let WorldItem::Interface { id, .. } = item else { return None };
        let interface = &world.resolve.interfaces[*id];
        let package = &world.resolve.packages[interface.package?].name;
        let full = format!("{}:{}/{}", package.namespace, package.name, interface.name.as_deref()?);
        (full == name).then_some(interface)
    })
}

/// The handler has our signature, and so has what is called of the host.
fn same(theirs: &World, handler: &Interface, ours: &World) -> Result<(), LoadError> {
    let Some(our_handler) = interface(ours, HANDLER, Side::Export) else {
        return Err(LoadError::Compile("wit/job.wit exports no handler".to_owned()));
    };
    let types = (&theirs.resolve, &ours.resolve);
    for (name, function) in &our_handler.functions {
        if !handler.functions.get(name).is_some_and(|theirs| same_function(types, theirs, function)) {
            return refused("its handler has another signature than hourhand:job asks for");
        }
    }
    for offered in OFFERED {
        let pair = (interface(theirs, offered, Side::Import), interface(ours, offered, Side::Import));
        let (Some(their_side), Some(our_side)) = pair else { continue };
        for (name, function) in &their_side.functions {
            match our_side.functions.get(name) {
                Some(ours) if same_function(types, function, ours) => {}
                Some(_) => return refused(&format!("it calls the host's {name} with another signature")),
                None => {
                    return refused(&format!("it calls the host's {name}, which this runner does not offer"));
                }
            }
        }
    }
    Ok(())
}

/// Two worlds' types, looked at side by side. Ours bound the depth.
type Pair<'a> = (&'a Resolve, &'a Resolve);

fn same_function(pair: Pair<'_>, a: &Function, b: &Function) -> bool {
    a.params.len() == b.params.len()
        && a.params.iter().zip(&b.params).all(|(a, b)| a.name == b.name && same_type(pair, &a.ty, &b.ty))
        && same_optional(pair, a.result.as_ref(), b.result.as_ref())
}

fn same_optional(pair: Pair<'_>, a: Option<&Type>, b: Option<&Type>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => same_type(pair, a, b),
        _ => false,
    }
}

fn same_type(pair: Pair<'_>, a: &Type, b: &Type) -> bool {
    let (Type::Id(a), Type::Id(b)) = (unaliased(pair.0, a), unaliased(pair.1, b)) else {
        return unaliased(pair.0, a) == unaliased(pair.1, b);
    };
    match (&pair.0.types[a].kind, &pair.1.types[b].kind) {
        (TypeDefKind::Record(a), TypeDefKind::Record(b)) => {
            same_items(&a.fields, &b.fields, |a, b| a.name == b.name && same_type(pair, &a.ty, &b.ty))
        }
        (TypeDefKind::Variant(a), TypeDefKind::Variant(b)) => same_items(&a.cases, &b.cases, |a, b| {
            a.name == b.name && same_optional(pair, a.ty.as_ref(), b.ty.as_ref())
        }),
        (TypeDefKind::Enum(a), TypeDefKind::Enum(b)) => {
            same_items(&a.cases, &b.cases, |a, b| a.name == b.name)
        }
        (TypeDefKind::Tuple(a), TypeDefKind::Tuple(b)) => {
            same_items(&a.types, &b.types, |a, b| same_type(pair, a, b))
        }
        (TypeDefKind::Option(a), TypeDefKind::Option(b)) | (TypeDefKind::List(a), TypeDefKind::List(b)) => {
            same_type(pair, a, b)
        }
        (TypeDefKind::Result(a), TypeDefKind::Result(b)) => {
            same_optional(pair, a.ok.as_ref(), b.ok.as_ref())
                && same_optional(pair, a.err.as_ref(), b.err.as_ref())
        }
        // wit/job.wit has no others.
        _ => false,
    }
}

fn same_items<T>(a: &[T], b: &[T], same: impl Fn(&T, &T) -> bool) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
}

/// What `use` and `type a = b` stand for.
fn unaliased(resolve: &Resolve, ty: &Type) -> Type {
    const ALIASES_MAX: usize = 100;
    let mut ty = *ty;
    for _ in 0..ALIASES_MAX {
        match ty {
            Type::Id(id) => match &resolve.types[id].kind {
                TypeDefKind::Type(aliased) => ty = *aliased,
                _ => return ty,
            },
            _ => return ty,
        }
    }
    ty
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The section of a world in WIT.
    fn section(wit: &str, world: &str, encoding: StringEncoding) -> Vec<u8> {
        let world = parsed(wit, world).unwrap();
        wit_component::metadata::encode(&world.resolve, world.id, encoding, None).unwrap()
    }

    fn refusal(wit: &str) -> Option<String> {
        check(&[&section(wit, "job-handler", StringEncoding::UTF8)]).err().map(|error| error.to_string())
    }

    #[test]
    fn our_own_worlds_are_there() {
        for world in [&JOB, &EXIT, &WASI] {
            assert_eq!(world.as_ref().err(), None);
        }
        let version = format!("package wasi:http@0.2.{WASI_PATCH};");
        assert!(WASI_WIT[6].1.starts_with(&version), "{version}");
        assert_eq!(refusal(JOB_WIT), None);
    }

    #[test]
    fn another_type_anywhere_is_refused() {
        for (from, to) in [
            ("attempt: u32", "attempt: u64"),
            ("attempt: u32", "tries: u32"),
            ("payload: list<u8>", "payload: string"),
            ("id: string,", ""),
            ("after-ms: option<u64>", "after-ms: u64"),
            ("permanent(string)", "permanent(u64)"),
            ("snooze(u64),", ""),
            ("meta: list<tuple<string, string>>", "meta: list<tuple<string, u64>>"),
            ("result<list<u8>, failure>", "result<string, failure>"),
            ("result<list<u8>, failure>", "list<u8>"),
            ("handle: func(job: job)", "handle: func(work: job)"),
        ] {
            assert!(JOB_WIT.contains(from), "{from}");
            let message = refusal(&JOB_WIT.replace(from, to)).expect(from);
            assert!(message.contains("another signature"), "{from}: {message}");
        }
    }

    #[test]
    fn fewer_host_functions_are_fine_and_unknown_or_other_ones_are_named() {
        let from = "log: func(level: level, message: string);";
        assert!(JOB_WIT.contains(from));
        assert_eq!(refusal(&JOB_WIT.replace(from, "")), None);
        let other = refusal(&JOB_WIT.replace(from, "log: func(message: string);")).unwrap();
        assert!(other.contains("the host's log with another signature"), "{other}");
        let newer = refusal(&JOB_WIT.replace(from, "now: func() -> u64;")).unwrap();
        assert!(newer.contains("the host's now, which this runner does not offer"), "{newer}");
    }

    #[test]
    fn all_that_the_host_offers_is_looked_at() {
        for (from, to, words) in [
            ("percent: u8", "percent: u32", "the host's progress with another signature"),
            ("enqueue: func(job: new-job)", "enqueue: func(kind: string)", "the host's enqueue with another"),
            ("at(u64),", "", "the host's enqueue with another"),
            ("by: s64", "by: u64", "the host's increment with another"),
            ("unavailable(string)", "away(string)", "another signature"),
            ("set: func(", "put: func(", "the host's put, which this runner does not offer"),
        ] {
            assert!(JOB_WIT.contains(from), "{from}");
            let message = refusal(&JOB_WIT.replace(from, to)).expect(from);
            assert!(message.contains(words), "{from}: {message}");
        }
    }

    #[test]
    fn strings_are_utf_8_and_a_world_of_something_else_is_none() {
        let utf16 = section(JOB_WIT, "job-handler", StringEncoding::UTF16);
        assert!(check(&[&utf16]).unwrap_err().to_string().contains("UTF-8"));
        let other = section("package a:b; world w { export f: func(); }", "w", StringEncoding::UTF8);
        assert!(check(&[&other]).unwrap_err().to_string().contains("does not export"));
        let ours = section(JOB_WIT, "job-handler", StringEncoding::UTF8);
        assert_eq!(check(&[&other, &ours]), Ok(()));
        assert!(check(&[&ours[..20]]).unwrap_err().to_string().contains("does not decode"));
    }
}
