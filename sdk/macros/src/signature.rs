//! The head of a handler function: enough of it to call the function and to say what cannot work.
//!
//! Read by hand, because syn's own parser of functions comes with a feature that doubles its compile
//! time; the body is never looked at.

use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Attribute, Error, Generics, Result, ReturnType, Token, Type, Visibility};

/// What is known of a handler function.
pub(crate) struct Signature {
    /// Its `#[cfg]`s, to be repeated on what is written beside it.
    pub(crate) cfgs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) name: Ident,
    /// Whether the first parameter is the context.
    pub(crate) takes_context: bool,
    /// The type of the payload, if it takes one.
    pub(crate) payload: Option<Type>,
    /// Where its return type is, for messages.
    pub(crate) output: Span,
}

impl Parse for Signature {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut cfgs = input.call(Attribute::parse_outer)?;
        cfgs.retain(|attribute| attribute.path().is_ident("cfg"));
        let vis = input.parse()?;
        qualifiers(input)?;
        let name: Ident = input.parse()?;
        let generics: Generics = input.parse()?;
        if !generics.params.is_empty() {
            return Err(Error::new(
                generics.span(),
                "a handler cannot be generic: each kind is one function with one payload type",
            ));
        }
        let inner;
        let parentheses = syn::parenthesized!(inner in input);
        let types = parameters(&inner)?;
        let (takes_context, payload) = roles(types)?;
        let output = match input.parse()? {
            ReturnType::Default => parentheses.span.close(),
            ReturnType::Type(_, ty) => ty.span(),
        };
        // The where clause and the body.
        input.parse::<TokenStream>()?;
        Ok(Self { cfgs, vis, name, takes_context, payload, output })
    }
}

/// What stands between the visibility and the name.
fn qualifiers(input: ParseStream<'_>) -> Result<()> {
    input.parse::<Option<Token![const]>>()?;
    if let Some(found) = input.parse::<Option<Token![async]>>()? {
        return Err(Error::new(found.span, "a handler cannot be async: a job runs alone in its sandbox"));
    }
    if let Some(found) = input.parse::<Option<Token![unsafe]>>()? {
        return Err(Error::new(
            found.span,
            "a handler cannot be unsafe: nobody is there to keep its promises",
        ));
    }
    if let Some(found) = input.parse::<Option<Token![extern]>>()? {
        return Err(Error::new(found.span, "a handler cannot be extern: it is an ordinary function"));
    }
    if input.parse::<Option<Token![fn]>>()?.is_none() {
        return Err(Error::new(input.span(), "#[handler] goes on a function"));
    }
    Ok(())
}

/// The types of the parameters.
fn parameters(input: ParseStream<'_>) -> Result<Vec<Type>> {
    let mut types = Vec::new();
    while !input.is_empty() {
        input.call(Attribute::parse_outer)?;
        pattern(input)?;
        types.push(input.parse()?);
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(types)
}

/// Skips a pattern and the colon after it.
fn pattern(input: ParseStream<'_>) -> Result<()> {
    loop {
        if input.peek(Token![::]) {
            input.parse::<Token![::]>()?;
        } else if input.peek(Token![:]) {
            input.parse::<Token![:]>()?;
            return Ok(());
        } else if input.is_empty() || input.peek(Token![,]) || input.peek(Token![self]) {
            return Err(input.error("a handler is a free function: it takes `ctx: &Context` and a payload"));
        } else {
            input.parse::<TokenTree>()?;
        }
    }
}

/// Which parameter is what.
fn roles(types: Vec<Type>) -> Result<(bool, Option<Type>)> {
    let mut types = types.into_iter();
    let (takes_context, payload) = match types.next() {
        Some(first) if is_context(&first) => (true, types.next()),
        first => (false, first),
    };
    if let Some(extra) = types.next() {
        let message = if is_context(&extra) && !takes_context {
            "the context comes first: `ctx: &Context, payload: ...`"
        } else {
            "a handler takes a `&Context` and one payload at most"
        };
        return Err(Error::new(extra.span(), message));
    }
    if let Some(ty) = &payload {
        check_payload(ty)?;
    }
    Ok((takes_context, payload))
}

fn check_payload(ty: &Type) -> Result<()> {
    if named_context(ty) {
        return Err(Error::new(ty.span(), "the context is taken as `&Context`"));
    }
    let Type::Reference(reference) = ty else { return Ok(()) };
    if named_context(&reference.elem) {
        return Err(Error::new(ty.span(), "the context is taken as `&Context`, once"));
    }
    let is_slice = matches!(*reference.elem, Type::Slice(_));
    if reference.mutability.is_some() || !is_slice {
        return Err(Error::new(
            ty.span(),
            "a handler takes its payload by value; only bytes can be lent, as `&[u8]`",
        ));
    }
    Ok(())
}

/// Whether a parameter of this type is the context: `&Context`, by whatever path.
fn is_context(ty: &Type) -> bool {
    matches!(ty, Type::Reference(reference) if reference.mutability.is_none() && named_context(&reference.elem))
}

fn named_context(ty: &Type) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "Context"))
}
