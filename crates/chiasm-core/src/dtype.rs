//! Element types of encoder outputs, under the names of torch and of safetensors.

use std::fmt;

macro_rules! dtypes {
    ($( $variant:ident, $torch:literal, $safetensors:literal, $bits:literal; )*) => {
        /// The element type of an encoder output. Its text form is torch's name without the
        /// `torch.` prefix (`bfloat16`), which is also what the wire carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Dtype {
            $(
                #[doc = concat!("`torch.", $torch, "`, `", $safetensors, "` in safetensors.")]
                $variant,
            )*
        }

        impl Dtype {
            /// Every element type, in a fixed order.
            pub const ALL: &[Self] = &[ $( Self::$variant, )* ];

            /// torch's name, without `torch.`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $( Self::$variant => $torch, )* }
            }

            /// The name in a safetensors header.
            #[must_use]
            pub const fn safetensors_name(self) -> &'static str {
                match self { $( Self::$variant => $safetensors, )* }
            }

            /// Bits of one element.
            #[must_use]
            pub const fn bits(self) -> u64 {
                match self { $( Self::$variant => $bits, )* }
            }
        }
    };
}

dtypes! {
    Float64, "float64", "F64", 64;
    Float32, "float32", "F32", 32;
    Float16, "float16", "F16", 16;
    Bfloat16, "bfloat16", "BF16", 16;
    Float8E4m3fn, "float8_e4m3fn", "F8_E4M3", 8;
    Float8E5m2, "float8_e5m2", "F8_E5M2", 8;
    Float8E8m0fnu, "float8_e8m0fnu", "F8_E8M0", 8;
    Complex64, "complex64", "C64", 64;
    Int64, "int64", "I64", 64;
    Int32, "int32", "I32", 32;
    Int16, "int16", "I16", 16;
    Int8, "int8", "I8", 8;
    Uint64, "uint64", "U64", 64;
    Uint32, "uint32", "U32", 32;
    Uint16, "uint16", "U16", 16;
    Uint8, "uint8", "U8", 8;
    Bool, "bool", "BOOL", 8;
}

impl Dtype {
    /// The type with torch's `name`, with or without the `torch.` prefix.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.strip_prefix("torch.").unwrap_or(name);
        Self::ALL.iter().copied().find(|dtype| dtype.name() == name)
    }

    /// The type with this name in a safetensors header.
    #[must_use]
    pub fn from_safetensors_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|dtype| dtype.safetensors_name() == name)
    }

    /// Exact bytes of `rows` x `width` elements; `None` where that overflows 64 bits.
    #[must_use]
    pub fn bytes_of(self, rows: u32, width: u32) -> Option<u64> {
        let elements = u64::from(rows).checked_mul(u64::from(width))?;
        elements.checked_mul(self.bits() / 8)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found_again() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_name(dtype.name()), Some(*dtype));
            assert_eq!(Dtype::from_name(&format!("torch.{dtype}")), Some(*dtype));
            assert_eq!(Dtype::from_safetensors_name(dtype.safetensors_name()), Some(*dtype));
            assert_eq!(dtype.bits() % 8, 0);
        }
        assert_eq!(Dtype::from_name("float31"), None);
        assert_eq!(Dtype::from_name(""), None);
    }

    #[test]
    fn sizes_are_exact_or_none() {
        assert_eq!(Dtype::Bfloat16.bytes_of(16, 128), Some(4096));
        assert_eq!(Dtype::Float64.bytes_of(u32::MAX, u32::MAX), None);
    }
}
