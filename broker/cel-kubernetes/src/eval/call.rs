//! Calls functions: chooses the overload and runs it.

use super::{Run, Runner, Stop};
use crate::library;
use crate::plan::Call;
use crate::value::Val;

impl Runner<'_> {
    pub(super) fn eval_call(&mut self, call: &Call, scope: Option<usize>) -> Run<Val> {
        let value = self.apply_function(call, scope)?;
        let ids: Vec<u32> = call.args.iter().map(crate::plan::Node::id).collect();
        self.tracker.count_call(
            self.minor,
            call.id,
            (&call.function, call.overload),
            &ids,
            &value,
        )?;
        Ok(value)
    }

    fn apply_function(&mut self, call: &Call, scope: Option<usize>) -> Run<Val> {
        let mut args = Vec::with_capacity(call.args.len());
        let lenient = call.function == "@not_strictly_false";
        // Calls of up to two arguments evaluate all of them before they check for errors. Longer
        // ones, and dispatched ones, stop at the first error.
        let eager = call.args.len() <= 2
            && call.pattern.is_none()
            && (call.overload.is_some_and(|o| o != "string_format")
                || library::is_single(&call.function));
        let mut random = false;
        for arg in &call.args {
            let value = self.run_doubtful(random && !eager, |run| run.eval_node(arg, scope))?;
            random |= value.may_fail();
            if value.is_error() && !eager && !lenient {
                return Ok(value);
            }
            args.push(value);
        }
        if !lenient && let Some(error) = args.iter().find(|a| a.is_error()) {
            return Ok(error.clone());
        }
        // With a constant pattern, cel-go uses only the Go value of the subject: a type becomes its
        // name, and an optional its content.
        if call.pattern.is_some()
            && let Some(first) = args.first_mut()
            && let Some(text) = first.go_text()
        {
            *first = Val::Str(text);
        }
        // Growing a list copies it here, unlike in cel-go; texts are copied faster.
        let sizes = args.iter().map(|a| {
            if matches!(a, Val::List(_) | Val::Map(_)) {
                a.cost_size()
            } else {
                a.cost_size() / 16
            }
        });
        self.tracker
            .count_steps(sizes.fold(0, u64::saturating_add))?;
        if self.tracker.is_shuffled()
            && let Some(value) = library::in_any_order(&call.function, &args)
        {
            return Ok(value);
        }
        let undecided = |reason: String| Stop::Beyond(reason);
        let context = library::Context {
            minor: self.minor,
            pattern: call.pattern.as_deref(),
        };
        if library::is_single(&call.function) {
            return library::operator(&call.function, &args, &context).map_err(undecided);
        }
        let overloads = self
            .functions
            .get(&call.function)
            .map(|f| f.overloads.as_slice())
            .unwrap_or_default();
        let mut candidates = overloads
            .iter()
            .filter(|o| call.overload.is_none_or(|id| id == o.id));
        let fits = |o: &&crate::decls::Overload| {
            let guarded = !library::is_unguarded(o.id);
            o.args.len() == args.len()
                && (!guarded || o.args.iter().zip(&args).all(|(t, v)| v.fits(t)))
        };
        let Some(overload) = candidates.find(fits) else {
            let types: Vec<&str> = args.iter().map(Val::type_name).collect();
            return Ok(Val::error(format!(
                "no such overload: {}({})",
                call.function,
                types.join(", ")
            )));
        };
        library::call_overload(overload.id, &args, &context).map_err(undecided)
    }
}
