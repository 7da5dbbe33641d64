//! The code that `#[handler]` writes beside the function.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::spanned::Spanned;
use syn::{Error, Result};

use crate::settings::{Settings, check_kind};
use crate::signature::Signature;

/// The function, and either what makes it a handler or what is wrong with it. The function is there in
/// both cases, so that one mistake does not look like many.
pub(crate) fn handler(settings: TokenStream, item: TokenStream) -> TokenStream {
    let added = parsed(settings, item.clone())
        .and_then(|(settings, signature)| expanded(&settings, &signature))
        .unwrap_or_else(Error::into_compile_error);
    quote! { #item #added }
}

fn parsed(settings: TokenStream, item: TokenStream) -> Result<(Settings, Signature)> {
    match (syn::parse2(settings), syn::parse2(item)) {
        (Ok(settings), Ok(signature)) => Ok((settings, signature)),
        (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
        (Err(mut all), Err(error)) => {
            all.combine(error);
            Err(all)
        }
    }
}

fn expanded(settings: &Settings, signature: &Signature) -> Result<TokenStream> {
    let kind = kind(settings, signature)?;
    let declaration = settings.declaration(&kind);
    let declaration_bytes = Literal::byte_string(declaration.as_bytes());
    let declaration_len = declaration.len();
    let Signature { cfgs, vis, name, .. } = signature;
    let [ctx, payload] = ["ctx", "payload"].map(|name| local(name, Span::call_site()));
    let call = call(signature, &ctx, &payload);
    let symbol = format!("the handler of the kind {kind}");
    let about = format!("The handler of the kind `{kind}`.");
    Ok(quote! {
        #(#cfgs)*
        #[doc = #about]
        #[allow(non_camel_case_types, dead_code)]
        #vis struct #name {}

        #(#cfgs)*
        const _: () = {
            impl ::hourhand_sdk::Handler for #name {
                const KIND: &'static str = #kind;

                fn run(
                    #ctx: &::hourhand_sdk::Context,
                    mut #payload: ::std::vec::Vec<u8>,
                ) -> ::std::result::Result<::std::vec::Vec<u8>, ::hourhand_sdk::Failure> {
                    #call
                }
            }

            // Natively nothing but tests calls the function, and that is no reason to warn.
            const _: fn(
                &::hourhand_sdk::Context,
                ::std::vec::Vec<u8>,
            ) -> ::std::result::Result<::std::vec::Vec<u8>, ::hourhand_sdk::Failure> =
                <#name as ::hourhand_sdk::Handler>::run;

            // The symbol is what makes a second handler of the kind an error of the compiler or the linker,
            // and what takes the handlers of a library crate along wherever that crate is linked.
            #[cfg(target_family = "wasm")]
            #[unsafe(export_name = #symbol)]
            extern "C" fn __hourhand_register() {
                static __HOURHAND_ENTRY: ::hourhand_sdk::__private::Entry =
                    ::hourhand_sdk::__private::Entry::new::<#name>();
                __HOURHAND_ENTRY.register();
            }

            #[cfg(target_family = "wasm")]
            #[used]
            #[unsafe(link_section = ".init_array")]
            static __HOURHAND_REGISTER: extern "C" fn() = __hourhand_register;

            #[cfg(target_family = "wasm")]
            #[used]
            #[unsafe(link_section = "hourhand.handlers")]
            static __HOURHAND_DECLARATION: [u8; #declaration_len] = *#declaration_bytes;
        };
    })
}

/// The kind that the settings name, else the function's name.
fn kind(settings: &Settings, signature: &Signature) -> Result<String> {
    if let Some(kind) = &settings.kind {
        return Ok(kind.clone());
    }
    let kind = signature.name.unraw().to_string();
    check_kind(&kind).map_err(|message| {
        Error::new(signature.name.span(), format!("{message}; say it with kind = \"...\""))
    })?;
    Ok(kind)
}

/// From the payload to the function, and from what it returns to bytes or a failure. The steps that a
/// type can fail at are written at the place of that type, so that the compiler points there. Nothing is
/// named here but by its full path, and variables are out of sight of the function's own names: a
/// handler may be called `payload` and take a `Value`.
fn call(signature: &Signature, ctx: &Ident, payload: &Ident) -> TokenStream {
    let name = &signature.name;
    let span = signature.output.resolved_at(Span::call_site());
    let [returned, value, error] = ["returned", "value", "error"].map(|name| local(name, span));
    let ctx_argument = signature.takes_context.then(|| quote! { #ctx, });
    let (read, payload_argument) = match &signature.payload {
        None => (TokenStream::new(), None),
        Some(ty) => {
            let span = ty.span().resolved_at(Span::call_site());
            let slot = local("slot", span);
            let read = quote_spanned! {span=>
                let #slot = ::hourhand_sdk::__private::Slot::<#ty>::new();
                let #payload = #slot.how().take(&mut #payload)?;
            };
            (read, Some(payload))
        }
    };
    let answer = quote_spanned! {span=>
        match ::hourhand_sdk::__private::Returned(&#returned).how().split(#returned) {
            ::std::result::Result::Ok(#value) => {
                ::hourhand_sdk::__private::Value(&#value).how().encode(#value)
            }
            ::std::result::Result::Err(#error) => ::std::result::Result::Err(
                (&::hourhand_sdk::__private::Problem(&#error)).how().failure(#error)
            ),
        }
    };
    quote! {
        #[allow(unused_imports)]
        use ::hourhand_sdk::__private::{
            AnyProblem as _, AnyReturned as _, AnySlot as _, AnyValue as _, ErrorProblem as _,
        };
        // Neither has to be of use to the function.
        _ = (#ctx, &mut #payload);
        #read
        let #returned = #name(#ctx_argument #payload_argument);
        #answer
    }
}

/// A variable that only generated code sees, at a place for messages.
fn local(name: &str, place: Span) -> Ident {
    Ident::new(name, place.resolved_at(Span::mixed_site()))
}
