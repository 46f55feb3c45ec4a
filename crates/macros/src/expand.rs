//! From a struct to its `Message` implementation.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Fields, FieldsNamed, Result};

use crate::attribute::{FieldPath, Settings};

/// The implementation, or an error that points at what is wrong.
pub(crate) fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    let fields = named_fields(&input)?;
    let settings = Settings::read(&input.ident, &input.attrs)?;
    let used = [
        Some(&settings.key),
        settings.operation.as_ref(),
        settings.partition_key.as_ref(),
        settings.aggregate_version.as_ref(),
    ];
    for path in used.into_iter().flatten() {
        check_field(fields, path)?;
    }
    Ok(implementation(&input, &settings))
}

fn named_fields(input: &DeriveInput) -> Result<&FieldsNamed> {
    if let Data::Struct(data) = &input.data
        && let Fields::Named(fields) = &data.fields
    {
        return Ok(fields);
    }
    Err(Error::new(
        input.ident.span(),
        "Message is derived for structs with named fields: a message needs a field for its key",
    ))
}

/// Only the first step of a path can be checked here; the compiler checks the rest.
fn check_field(fields: &FieldsNamed, path: &FieldPath) -> Result<()> {
    let is_known = |wanted| {
        fields
            .named
            .iter()
            .any(|f| f.ident.as_ref() == Some(wanted))
    };
    match path.first() {
        Some(first) if is_known(first) => Ok(()),
        Some(first) => Err(Error::new(
            first.span(),
            format!("the struct has no field {first}"),
        )),
        None => Err(Error::new_spanned(path, "name a field")),
    }
}

fn implementation(input: &DeriveInput, settings: &Settings) -> TokenStream {
    let name = &input.ident;
    let (generics, arguments, bounds) = input.generics.split_for_impl();
    let Settings {
        message_type,
        version,
        aggregate,
        key,
        path,
        ..
    } = settings;
    let operation = settings.operation.as_ref().map(|field| {
        let value = text(field);
        quote! {
            fn operation(&self) -> ::core::option::Option<::std::string::String> {
                ::core::option::Option::Some(#value)
            }
        }
    });
    let partition_key = settings.partition_key.as_ref().map(|field| {
        let value = text(field);
        quote! {
            fn partition_key(&self) -> ::core::option::Option<::std::string::String> {
                ::core::option::Option::Some(#value)
            }
        }
    });
    let aggregate_version = settings.aggregate_version.as_ref().map(|field| {
        quote! {
            fn aggregate_version(&self) -> ::core::option::Option<i64> {
                ::core::option::Option::Some(<i64 as ::core::convert::From<_>>::from(self.#field))
            }
        }
    });
    let key = text(key);
    quote! {
        #[automatically_derived]
        impl #generics #path::Message for #name #arguments #bounds {
            const TYPE: &'static str = #message_type;
            const VERSION: i32 = #version;
            const AGGREGATE_TYPE: &'static str = #aggregate;

            fn key(&self) -> ::std::string::String {
                #key
            }

            #operation
            #partition_key
            #aggregate_version
        }
    }
}

fn text(field: &FieldPath) -> TokenStream {
    quote! { ::std::string::ToString::to_string(&self.#field) }
}

#[cfg(test)]
#[path = "expand_tests.rs"]
mod tests;
