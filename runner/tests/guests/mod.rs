//! Guests made for a test, instruction by instruction: what no compiler would write (a start function
//! that spins, a memory of 4 GiB, a wrong signature) and what takes one to build.
//!
//! Each is a core module with a bump allocator for the payload; `build` adds the WIT world, as the SDK
//! does. The offsets are those of `wit/job.wit` in memory, by the canonical ABI.

#![allow(dead_code, unused_imports, unreachable_pub, reason = "each test uses some of them")]

use wasm_encoder::{
    CodeSection, ConstExpr, CustomSection, DataSection, EntityType, ExportKind, ExportSection, Function,
    FunctionSection, GlobalSection, GlobalType, ImportSection, Instruction as I, MemArg, MemorySection,
    MemoryType, Module, RefType, StartSection, TableSection, TableType, TypeSection, ValType,
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

mod examples;
mod running;

pub use examples::*;
pub use running::*;

pub const WIT: &str = include_str!("../../../wit/job.wit");

/// Where the payload's address and length lie in the job record.
pub const PAYLOAD_PTR: u64 = 72;
pub const PAYLOAD_LEN: u64 = 76;
/// Where a guest's function puts its result.
pub const RESULT: i32 = 16;
/// Where the guests' own text lies.
pub const TEXT: i32 = 1024;
/// Where the allocator begins.
const HEAP: i32 = 65_536;

/// A guest under construction.
pub struct Guest {
    imports: Vec<(&'static str, &'static str, Vec<ValType>, Vec<ValType>)>,
    memory: MemoryType,
    second_memory: bool,
    table: bool,
    text: Vec<u8>,
    handle: Vec<I<'static>>,
    locals: Vec<ValType>,
    start: Option<Vec<I<'static>>>,
    realloc: Option<Vec<I<'static>>>,
    post_return: Option<Vec<I<'static>>>,
    handlers: Option<String>,
    extra_export: Option<String>,
    export: String,
    handle_params: Vec<ValType>,
    handle_results: Vec<ValType>,
    wit: String,
}

/// A guest whose handler runs `body`: local 0 is the job record's address, and it leaves the address of
/// the result record. Imports come first in the order of functions.
pub fn guest(body: impl IntoIterator<Item = I<'static>>) -> Guest {
    Guest {
        imports: Vec::new(),
        memory: MemoryType {
            minimum: 2,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        },
        second_memory: false,
        table: false,
        text: Vec::new(),
        handle: body.into_iter().collect(),
        locals: Vec::new(),
        start: None,
        realloc: None,
        post_return: None,
        handlers: None,
        extra_export: None,
        export: "hourhand:job/handler@0.1.0#handle".to_owned(),
        handle_params: vec![ValType::I32],
        handle_results: vec![ValType::I32],
        wit: WIT.to_owned(),
    }
}

impl Guest {
    pub fn import(
        mut self,
        module: &'static str,
        name: &'static str,
        params: &[ValType],
        results: &[ValType],
    ) -> Self {
        self.imports.push((module, name, params.to_vec(), results.to_vec()));
        self
    }

    pub fn wasi(self, name: &'static str, params: &[ValType]) -> Self {
        self.import("wasi_snapshot_preview1", name, params, &[ValType::I32])
    }

    pub fn locals(mut self, locals: &[ValType]) -> Self {
        self.locals = locals.to_vec();
        self
    }

    pub fn memory(mut self, memory: MemoryType) -> Self {
        self.memory = memory;
        self
    }

    /// Another memory of a page, with index 1.
    pub fn second_memory(mut self) -> Self {
        self.second_memory = true;
        self
    }

    /// A table of a function reference.
    pub fn table(mut self) -> Self {
        self.table = true;
        self
    }

    pub fn pages(mut self, minimum: u64) -> Self {
        self.memory.minimum = minimum;
        self
    }

    pub fn text(mut self, text: impl AsRef<[u8]>) -> Self {
        self.text = text.as_ref().to_vec();
        self
    }

    pub fn start(mut self, body: impl IntoIterator<Item = I<'static>>) -> Self {
        self.start = Some(body.into_iter().collect());
        self
    }

    /// What gives the host memory: old address and length, alignment and new length are its locals.
    pub fn realloc(mut self, body: impl IntoIterator<Item = I<'static>>) -> Self {
        self.realloc = Some(body.into_iter().collect());
        self
    }

    /// What is called once the result was taken: its address is local 0.
    pub fn post_return(mut self, body: impl IntoIterator<Item = I<'static>>) -> Self {
        self.post_return = Some(body.into_iter().collect());
        self
    }

    /// Traps where it would have returned.
    pub fn then_unreachable(mut self) -> Self {
        self.handle.push(I::Unreachable);
        self
    }

    /// What the SDK's macro would declare.
    pub fn handlers(mut self, lines: &str) -> Self {
        self.handlers = Some(lines.to_owned());
        self
    }

    pub fn extra_export(mut self, name: &str) -> Self {
        self.extra_export = Some(name.to_owned());
        self
    }

    pub fn export(mut self, name: &str) -> Self {
        self.export = name.to_owned();
        self
    }

    pub fn handle_params(mut self, params: &[ValType]) -> Self {
        self.handle_params = params.to_vec();
        self
    }

    pub fn no_results(mut self) -> Self {
        self.handle_results.clear();
        self
    }

    pub fn wit(mut self, wit: String) -> Self {
        self.wit = wit;
        self
    }

    /// The module with its WIT world.
    pub fn build(&self) -> Vec<u8> {
        let mut bytes = self.build_bare();
        let mut resolve = Resolve::default();
        let package = resolve.push_str("job.wit", &self.wit).expect("valid WIT");
        let world = resolve.select_world(&[package], Some("job-handler")).expect("the world is there");
        embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8).expect("embeds");
        bytes
    }

    /// The core module alone.
    pub fn build_bare(&self) -> Vec<u8> {
        let imported = self.imports.len() as u32;
        let (handle, realloc, start) = (imported, imported + 1, imported + 2);
        let mut types = TypeSection::new();
        let mut imports = ImportSection::new();
        for (index, (module, name, params, results)) in self.imports.iter().enumerate() {
            types.ty().function(params.iter().copied(), results.iter().copied());
            imports.import(module, name, EntityType::Function(index as u32));
        }
        types.ty().function(self.handle_params.iter().copied(), self.handle_results.iter().copied());
        types.ty().function([ValType::I32; 4], [ValType::I32]);
        types.ty().function([], []);
        types.ty().function([ValType::I32], []);

        let mut functions = FunctionSection::new();
        functions.function(handle).function(realloc).function(start);
        if self.post_return.is_some() {
            functions.function(start + 1);
        }
        let mut memories = MemorySection::new();
        memories.memory(self.memory);
        if self.second_memory {
            memories.memory(MemoryType { minimum: 1, maximum: None, ..self.memory });
        }
        let mut tables = TableSection::new();
        tables.table(TableType {
            element_type: RefType::FUNCREF,
            table64: false,
            minimum: 1,
            maximum: None,
            shared: false,
        });
        let mut globals = GlobalSection::new();
        let heap = GlobalType { val_type: ValType::I32, mutable: true, shared: false };
        globals.global(heap, &ConstExpr::i32_const(HEAP));
        let mut exports = ExportSection::new();
        exports.export("memory", ExportKind::Memory, 0);
        exports.export(&self.export, ExportKind::Func, handle);
        exports.export("cabi_realloc", ExportKind::Func, realloc);
        if let Some(name) = &self.extra_export {
            exports.export(name, ExportKind::Func, start);
        }
        if self.post_return.is_some() {
            exports.export(&format!("cabi_post_{}", self.export), ExportKind::Func, start + 1);
        }
        let mut code = CodeSection::new();
        code.function(&function(&self.locals, &self.handle));
        code.function(&function(&[], &self.realloc.clone().unwrap_or_else(bump_allocator)));
        code.function(&function(&[], self.start.as_deref().unwrap_or(&[])));
        if let Some(post_return) = &self.post_return {
            code.function(&function(&[], post_return));
        }
        let mut data = DataSection::new();
        data.active(0, &ConstExpr::i32_const(TEXT), self.text.iter().copied());

        let mut module = Module::new();
        module.section(&types).section(&imports).section(&functions);
        if self.table {
            module.section(&tables);
        }
        module.section(&memories).section(&globals).section(&exports);
        if self.start.is_some() {
            module.section(&StartSection { function_index: start });
        }
        module.section(&code).section(&data);
        if let Some(lines) = &self.handlers {
            let section = CustomSection { name: "hourhand.handlers".into(), data: lines.as_bytes().into() };
            module.section(&section);
        }
        module.finish()
    }
}

fn function(locals: &[ValType], body: &[I<'static>]) -> Function {
    let mut function = Function::new_with_locals_types(locals.iter().copied());
    for instruction in body {
        function.instruction(instruction);
    }
    function.instruction(&I::End);
    function
}

/// `cabi_realloc`: never frees; grows the memory when it must, and traps where that fails.
fn bump_allocator() -> Vec<I<'static>> {
    let end_after_this =
        [I::GlobalGet(0), I::LocalGet(3), I::I32Add, I::I32Const(15), I::I32Add, I::I32Const(-8), I::I32And];
    let mut body = vec![I::GlobalGet(0)];
    body.extend(end_after_this);
    body.extend([
        I::GlobalSet(0),
        I::GlobalGet(0),
        I::MemorySize(0),
        I::I32Const(16),
        I::I32Shl,
        I::I32GtU,
        I::If(wasm_encoder::BlockType::Empty),
        I::GlobalGet(0),
        I::MemorySize(0),
        I::I32Const(16),
        I::I32Shl,
        I::I32Sub,
        I::I32Const(65_535),
        I::I32Add,
        I::I32Const(16),
        I::I32ShrU,
        I::MemoryGrow(0),
        I::I32Const(-1),
        I::I32Eq,
        I::If(wasm_encoder::BlockType::Empty),
        I::Unreachable,
        I::End,
        I::End,
    ]);
    body
}

pub fn at(offset: u64) -> MemArg {
    MemArg { offset, align: 0, memory_index: 0 }
}

/// Stores `value` at `RESULT + offset`.
pub fn put(offset: u64, value: i32) -> [I<'static>; 3] {
    [I::I32Const(RESULT), I::I32Const(value), I::I32Store(at(offset))]
}

/// Completes with the `len` bytes at `ptr`.
pub fn ok(ptr: i32, len: i32) -> Vec<I<'static>> {
    let mut body = Vec::new();
    body.extend(put(0, 0));
    body.extend(put(8, ptr));
    body.extend(put(12, len));
    body.push(I::I32Const(RESULT));
    body
}

/// Fails: `case` is the position in `variant failure`, the text lies at [`TEXT`].
pub fn failure(case: i32, text_len: i32) -> Vec<I<'static>> {
    let mut body = Vec::new();
    body.extend(put(0, 1));
    body.extend(put(8, case));
    body.extend(put(16, TEXT));
    body.extend(put(20, text_len));
    body.extend(put(24, 0));
    body.push(I::I32Const(RESULT));
    body
}
