//! Expressions, and the types that they have.

use crate::diagnostic::{Span, suggest};
use crate::event::{EventType, FieldType};
use crate::program::{Expr, Key, LaneId, Part};
use crate::syntax::{self, Binary, ExprKind, Unary};

use super::{Checked, Checker, EXPRS_MAX, Names};

/// What an expression may be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    /// A number, with its smallest and largest value if they are known.
    Number(Option<(i128, i128)>),
    Bool,
    Text,
}

impl Type {
    pub(super) fn of(ty: FieldType) -> Type {
        match ty {
            FieldType::Bool => Type::Bool,
            FieldType::Text => Type::Text,
            _ => Type::Number(Some(ty.range())),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Type::Number(_) => "a number",
            Type::Bool => "a truth value",
            Type::Text => "a text",
        }
    }

    pub(super) fn like(self, other: Type) -> bool {
        self.name() == other.name()
    }
}

/// Where expressions are read: the file, the event, and what was derived so far.
pub(super) struct Context<'a> {
    pub(super) file: usize,
    pub(super) event: &'a EventType,
    pub(super) derived: Vec<(String, Type)>,
}

impl Checker {
    pub(super) fn find(
        &mut self,
        lane: &syntax::Lane,
        context: &Context<'_>,
        names: &Names,
    ) -> Checked<(LaneId, Key)> {
        let Some(found) = names.lanes.get(&lane.name.text).copied() else {
            let help = suggest(&lane.name.text, names.lanes.keys().map(String::as_str));
            let message = format!("there is no timeline or stream `{}`", lane.name.text);
            return self.error_with(context.file, lane.name.span, message, help);
        };
        let declared = match found {
            LaneId::Timeline(n) => &names.timelines[n],
            LaneId::Stream(n) => &names.streams[n],
        };
        if declared.key.len() != lane.key.len() {
            let fields: Vec<&str> = declared.key.iter().map(|field| field.name.as_str()).collect();
            let help = Some(format!("its key is ({})", fields.join(", ")));
            let message = format!(
                "`{}` has a key of {}, not of {}",
                lane.name.text,
                declared.key.len(),
                lane.key.len()
            );
            return self.error_with(context.file, lane.name.span, message, help);
        }
        let mut parts = Vec::new();
        for (field, value) in declared.key.iter().zip(&lane.key) {
            let what = format!("field `{}` of the key is", field.name);
            let (compiled, ty) = self.expr(value, context)?;
            self.same(ty, Type::of(field.ty), &what, value.span, context.file)?;
            let (least, most) = field.ty.range();
            let fits = match ty {
                Type::Number(Some((low, high))) => low >= least && high <= most,
                Type::Number(None) => false,
                Type::Bool | Type::Text => true,
            };
            let range = (!fits).then_some((least, most));
            parts.push(Part { value: compiled, bits: field.ty.bits(), range });
        }
        Ok((found, Key::new(parts)))
    }

    pub(super) fn same(
        &mut self,
        found: Type,
        expected: Type,
        what: &str,
        span: Span,
        file: usize,
    ) -> Checked<()> {
        match found.like(expected) {
            true => Ok(()),
            false => {
                let message = format!("{what} {}, and this is {}", expected.name(), found.name());
                self.error(file, span, message)
            }
        }
    }

    pub(super) fn typed(
        &mut self,
        expr: &syntax::Expr,
        expected: Type,
        what: &str,
        context: &Context<'_>,
    ) -> Checked<Expr> {
        let (compiled, ty) = self.expr(expr, context)?;
        self.same(ty, expected, what, expr.span, context.file)?;
        Ok(compiled)
    }

    pub(super) fn expr(
        &mut self,
        expr: &syntax::Expr,
        context: &Context<'_>,
    ) -> Checked<(Expr, Type)> {
        self.exprs += 1;
        if self.exprs > EXPRS_MAX {
            return self.error(
                context.file,
                expr.span,
                "the expressions of this schema are too many",
            );
        }
        Ok(match &expr.kind {
            ExprKind::Number(number) => {
                let value = i128::from(*number);
                (Expr::Constant(value), Type::Number(Some((value, value))))
            }
            ExprKind::Bool(value) => (Expr::Constant(i128::from(*value)), Type::Bool),
            ExprKind::Text(text) => {
                (Expr::Constant(i128::from(self.strings.code(text))), Type::Text)
            }
            ExprKind::Name(name) => return self.value_named(name, expr.span, context),
            ExprKind::Unary(operator, operand) => {
                let (ty, what) = match operator {
                    Unary::Minus => (Type::Number(None), "what is negated is"),
                    Unary::Not => (Type::Bool, "behind `not` stands"),
                };
                let operand = self.typed(operand, ty, what, context)?;
                (Expr::Unary(*operator, Box::new(operand)), ty)
            }
            ExprKind::Binary(operator, left, right) => {
                return self.binary(*operator, left, right, context);
            }
            ExprKind::In(value, among) => {
                let (value, ty) = self.expr(value, context)?;
                let mut values = Vec::new();
                for other in among {
                    values.push(self.typed(other, ty, "what is looked for is", context)?);
                }
                (Expr::In(Box::new(value), values.into()), Type::Bool)
            }
        })
    }

    fn value_named(
        &mut self,
        name: &str,
        span: Span,
        context: &Context<'_>,
    ) -> Checked<(Expr, Type)> {
        if let Some(column) = context.event.place(name) {
            let ty = context.event.fields[column].ty;
            return Ok((Expr::Column { column, signed: ty.signed() }, Type::of(ty)));
        }
        if let Some(n) = context.derived.iter().position(|(derived, _)| derived == name) {
            return Ok((Expr::Local(n), context.derived[n].1));
        }
        let fields = context.event.fields.iter().map(|field| field.name.as_str());
        let derived = context.derived.iter().map(|(name, _)| name.as_str());
        let help = suggest(name, fields.clone().chain(derived)).or_else(|| {
            let fields: Vec<&str> = fields.collect();
            (!fields.is_empty()).then(|| format!("its fields are {}", fields.join(", ")))
        });
        let message = format!("event `{}` has no field `{name}`", context.event.name);
        self.error_with(context.file, span, message, help)
    }

    fn binary(
        &mut self,
        operator: Binary,
        left: &syntax::Expr,
        right: &syntax::Expr,
        context: &Context<'_>,
    ) -> Checked<(Expr, Type)> {
        let number = Type::Number(None);
        let (a, b, ty) = match operator {
            Binary::Or | Binary::And => {
                let a = self.typed(left, Type::Bool, "`and` and `or` stand beside", context)?;
                let b = self.typed(right, Type::Bool, "`and` and `or` stand beside", context)?;
                (a, b, Type::Bool)
            }
            Binary::Equal | Binary::Unequal => {
                let (a, ty) = self.expr(left, context)?;
                (a, self.typed(right, ty, "the left side is", context)?, Type::Bool)
            }
            _ => {
                let a = self.typed(left, number, "the left side has to be", context)?;
                let b = self.typed(right, number, "the right side has to be", context)?;
                let compares = matches!(
                    operator,
                    Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual
                );
                (a, b, if compares { Type::Bool } else { number })
            }
        };
        Ok((Expr::Binary(operator, Box::new((a, b))), ty))
    }
}
