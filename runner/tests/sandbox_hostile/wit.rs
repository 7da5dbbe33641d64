//! The functions of `wit/job.wit`, where in their arguments and results a lie can stand, and which.

use wasm_encoder::{Instruction as I, ValType};
use wit_parser::abi::WasmType;
use wit_parser::{Function, Resolve, SizeAlign, Type, TypeDefKind, WorldId, WorldItem};

use crate::guests::{TEXT, WIT, at};

/// Where arguments lie that are passed by address.
pub const ARGUMENTS: u64 = 4_096;
/// Where answers go.
pub const ANSWER: i32 = 8_192;
/// What lies at [`TEXT`]: neither UTF-8 nor the address of anything.
pub const NONSENSE: [u8; 64] = [0xff; 64];

/// The interface, and what its types look like in memory.
pub struct Wit {
    pub resolve: Resolve,
    world: WorldId,
    sizes: SizeAlign,
}

pub fn wit() -> Wit {
    let mut resolve = Resolve::default();
    let package = resolve.push_str("job.wit", WIT).expect("valid WIT");
    let world = resolve.select_world(&[package], Some("job-handler")).expect("the world is there");
    let mut sizes = SizeAlign::default();
    sizes.fill(&resolve);
    Wit { resolve, world, sizes }
}

impl Wit {
    /// Every function on one side of the world, with its interface as core modules name it.
    pub fn functions(&self, imported: bool) -> Vec<(String, Function)> {
        let world = &self.resolve.worlds[self.world];
        let items = if imported { &world.imports } else { &world.exports };
        let mut all = Vec::new();
        for item in items.values() {
            let WorldItem::Interface { id, .. } = item else {
                panic!("the world has functions of its own: try them here too");
            };
            let name = self.resolve.id_of(*id).expect("a name");
            let functions = self.resolve.interfaces[*id].functions.values();
            all.extend(functions.map(|function| (name.clone(), function.clone())));
        }
        all
    }
}

/// A place where something can be wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spot {
    /// The address of so many bytes; its length follows 4 bytes or an argument later. Of a text if it says so, of elements with
    /// addresses of their own if `deep`.
    List { text: bool, deep: bool },
    /// Which of so many cases; a byte in memory.
    Case(u32),
}

/// A spot in memory: its offset, and the cases that must be set for it to count.
#[derive(Debug, Clone)]
pub struct Placed {
    pub spot: Spot,
    offset: u64,
    cases: Vec<(u64, u8)>,
}

impl Wit {
    fn list(&self, element: &Type) -> Spot {
        Spot::List { text: false, deep: !self.placed(element, 0, &[]).is_empty() }
    }

    /// The spots of a value of this type that lies at `offset`.
    pub fn placed(&self, ty: &Type, offset: u64, cases: &[(u64, u8)]) -> Vec<Placed> {
        let here = |spot| Placed { spot, offset, cases: cases.to_vec() };
        let id = match ty {
            Type::String => return vec![here(Spot::List { text: true, deep: false })],
            Type::Id(id) => *id,
            _ => return Vec::new(),
        };
        let variant = |types: Vec<Option<Type>>| {
            let tag = wit_parser::Int::U8;
            let inside = offset
                + self.sizes.payload_offset(tag, types.iter().map(Option::as_ref)).size_wasm32() as u64;
            let mut all = vec![here(Spot::Case(types.len() as u32))];
            for (case, ty) in
                types.iter().enumerate().filter_map(|(case, ty)| Some((case as u8, ty.as_ref()?)))
            {
                let cases = [cases, &[(offset, case)]].concat();
                all.extend(self.placed(ty, inside, &cases));
            }
            all
        };
        match &self.resolve.types[id].kind {
            TypeDefKind::Type(ty) => self.placed(ty, offset, cases),
            TypeDefKind::List(element) => vec![here(self.list(element))],
            TypeDefKind::Record(record) => {
                self.fields(&record.fields.iter().map(|field| field.ty).collect::<Vec<_>>(), offset, cases)
            }
            TypeDefKind::Tuple(tuple) => self.fields(&tuple.types, offset, cases),
            TypeDefKind::Enum(cases) => vec![here(Spot::Case(cases.cases.len() as u32))],
            TypeDefKind::Variant(cases) => variant(cases.cases.iter().map(|case| case.ty).collect()),
            TypeDefKind::Option(ty) => variant(vec![None, Some(*ty)]),
            TypeDefKind::Result(result) => variant(vec![result.ok, result.err]),
            other => {
                panic!("wit/ has a {} now: try here what a hostile module can do with it", other.as_str())
            }
        }
    }

    pub fn fields(&self, types: &[Type], offset: u64, cases: &[(u64, u8)]) -> Vec<Placed> {
        let offsets = self.sizes.field_offsets(types);
        offsets
            .into_iter()
            .flat_map(|(at, ty)| self.placed(ty, offset + at.size_wasm32() as u64, cases))
            .collect()
    }

    /// The spots of arguments that are passed by value, with their positions.
    pub fn by_value(&self, function: &Function) -> Vec<(usize, Spot)> {
        let mut spots = Vec::new();
        let mut position = 0;
        for param in &function.params {
            let placed = self.placed(&param.ty, 0, &[]);
            match (&param.ty, placed.as_slice()) {
                (_, []) => position += 1,
                (_, [Placed { spot: spot @ Spot::List { .. }, .. }]) => {
                    spots.push((position, *spot));
                    position += 2;
                }
                (_, [Placed { spot: spot @ Spot::Case(_), .. }]) => {
                    spots.push((position, *spot));
                    position += 1;
                }
                _ => panic!(
                    "{} passes more than one thing in an argument: say here how they lie",
                    function.name
                ),
            }
        }
        spots
    }
}

/// What can be wrong at a spot: in words, and what stands there and after it.
pub fn lies(spot: Spot) -> Vec<(&'static str, i32, i32)> {
    match spot {
        Spot::List { text, deep } => {
            let mut lies = vec![
                ("an address beyond the memory", -16, 8),
                ("a length beyond the memory", TEXT, i32::MAX),
                ("an address and a length that wrap around", -8, 16),
                ("an end just beyond the memory", (2 << 16) - 4, 8),
            ];
            if text {
                lies.push(("no UTF-8", TEXT, 8));
            }
            if deep {
                lies.push(("an address that is not aligned", TEXT + 1, 1));
                lies.push(("elements with addresses of nothing", TEXT, 1));
            }
            lies
        }
        Spot::Case(cases) => {
            vec![("a case too many", cases as i32, 0), ("no case at all", 0xff, 0)]
        }
    }
}

pub fn store(offset: u64, value: i32) -> [I<'static>; 3] {
    [I::I32Const(0), I::I32Const(value), I::I32Store(at(offset))]
}

pub fn store_byte(offset: u64, value: u8) -> [I<'static>; 3] {
    [I::I32Const(0), I::I32Const(value.into()), I::I32Store8(at(offset))]
}

/// Puts a lie where it counts.
pub fn put_lie(placed: &Placed, base: u64, (_, first, second): (&str, i32, i32)) -> Vec<I<'static>> {
    let mut body: Vec<I<'static>> =
        placed.cases.iter().flat_map(|(offset, case)| store_byte(base + offset, *case)).collect();
    match placed.spot {
        Spot::List { .. } => {
            body.extend(store(base + placed.offset, first));
            body.extend(store(base + placed.offset + 4, second));
        }
        Spot::Case(_) => body.extend(store_byte(base + placed.offset, first as u8)),
    }
    body
}

pub fn val(ty: WasmType) -> ValType {
    match ty {
        WasmType::I64 | WasmType::PointerOrI64 => ValType::I64,
        WasmType::F32 => ValType::F32,
        WasmType::F64 => ValType::F64,
        WasmType::I32 | WasmType::Pointer | WasmType::Length => ValType::I32,
    }
}

pub fn constant(ty: WasmType, value: i32) -> I<'static> {
    match val(ty) {
        ValType::I64 => I::I64Const(value.into()),
        ValType::F32 => I::F32Const(0.0.into()),
        ValType::F64 => I::F64Const(0.0.into()),
        _ => I::I32Const(value),
    }
}
