package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Go iterates a map in random order. A result that depends on the order of even two entries shows in this many evaluations.
const evaluations = 200

// Without a loop, or once it has taken longEnough, an expression is evaluated only so often.
const (
	longEnough = 50 * time.Millisecond
	someTimes  = 5
)

// Every macro that iterates over a map has one of these in its name.
var loops = []string{"map(", "filter(", "all(", "exists", "transform"}

// An accessor lets an expression have any type. The API server's own ones want a bool of a user's expression.
type accessor string

func (a accessor) GetExpression() string { return string(a) }

func (a accessor) ReturnTypes() []*cel.Type { return []*cel.Type{cel.AnyType} }

// A recorder keeps the details of the last evaluation, which the API server drops.
type recorder struct {
	cel.Program
	details *cel.EvalDetails
}

func (r *recorder) ContextEval(ctx context.Context, input any) (ref.Val, *cel.EvalDetails, error) {
	value, details, err := r.Program.ContextEval(ctx, input)
	r.details = details
	return value, details, err
}

// observe returns the result of each expression: "refused", or the cost and then "TYPE = VALUE" or "fails MESSAGE".
// A part that differs between evaluations is "~". An expression that kills the API server "panics".
func (o *oracle) observe(asked observed) []string {
	results := make([]string, 0, len(asked.Expressions))
	for _, e := range asked.Expressions {
		results = append(results, o.observeOne(asked, e))
	}
	return results
}

func (o *oracle) observeOne(asked observed, e expression) (result string) {
	defer func() {
		if cause := recover(); cause != nil {
			result = "panics"
		}
	}()
	compile := o.release.compiler.CompileClaimsExpression
	if e.Scope == "user" {
		compile = o.release.compiler.CompileUserExpression
	}
	compiled, err := compile(accessor(e.Text))
	if err != nil {
		return "refused"
	}
	recorder := &recorder{Program: compiled.Program}
	compiled.Program = recorder
	var costs, outcomes, messages = map[uint64]bool{}, map[string]bool{}, map[string]bool{}
	var cost, outcome, message string
	started, loops := time.Now(), iterates(e.Text)
	for i := range evaluations {
		if i >= someTimes && (!loops || time.Since(started) > longEnough) {
			break
		}
		recorder.details = nil
		var value ref.Val
		if e.Scope == "user" {
			value, err = evaluateUser(compiled, asked.User)
		} else {
			value, err = evaluateClaims(compiled, asked.Claims)
		}
		if recorder.details != nil && recorder.details.ActualCost() != nil {
			cost = fmt.Sprint(*recorder.details.ActualCost())
			costs[*recorder.details.ActualCost()] = true
		}
		if err != nil {
			outcome = "fails"
			message = strings.TrimPrefix(err.Error(), fmt.Sprintf("expression '%s' resulted in error: ", e.Text))
			messages[message] = true
		} else {
			outcome = fmt.Sprintf("%s = %s", cel.FormatCELType(compiled.AST.OutputType()), show(value))
		}
		outcomes[outcome] = true
	}
	switch {
	case len(outcomes) > 1:
		return "~"
	case len(costs) != 1:
		cost = "~"
	}
	switch {
	case outcome != "fails":
		return cost + " " + outcome
	case len(messages) > 1:
		return cost + " fails ~"
	default:
		return cost + " fails " + quoted(message)
	}
}

func iterates(text string) bool {
	for _, part := range loops {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

func show(value ref.Val) string {
	switch v := value.(type) {
	case types.Null:
		return "null"
	case types.Bool:
		return fmt.Sprintf("bool:%t", bool(v))
	case types.Int:
		return fmt.Sprintf("int:%d", int64(v))
	case types.Uint:
		return fmt.Sprintf("uint:%d", uint64(v))
	case types.Double:
		if math.IsNaN(float64(v)) {
			return "double:7ff8000000000000"
		}
		return fmt.Sprintf("double:%016x", math.Float64bits(float64(v)))
	case types.String:
		return "string:" + quoted(string(v))
	case types.Bytes:
		return fmt.Sprintf("bytes:%x", []byte(v))
	case types.Timestamp:
		return fmt.Sprintf("timestamp:%d.%09d", v.Unix(), v.Nanosecond())
	case types.Duration:
		return fmt.Sprintf("duration:%d", v.Nanoseconds())
	case *types.Optional:
		if !v.HasValue() {
			return "optional.none"
		}
		return "optional(" + show(v.GetValue()) + ")"
	case *types.Type:
		return "type:" + v.TypeName()
	case traits.Lister:
		return "[" + strings.Join(elements(v), ", ") + "]"
	case traits.Mapper:
		if _, ok := value.Type().(*types.Type); ok && value.Type().TypeName() != types.MapType.TypeName() {
			return "lazymap"
		}
		entries := []string{}
		for it := v.Iterator(); it.HasNext() == types.True; {
			key := it.Next()
			entries = append(entries, show(key)+": "+show(v.Get(key)))
		}
		sort.Strings(entries)
		return "{" + strings.Join(entries, ", ") + "}"
	default:
		return "opaque:" + value.Type().TypeName()
	}
}

func elements(list traits.Lister) []string {
	shown := []string{}
	for it := list.Iterator(); it.HasNext() == types.True; {
		shown = append(shown, show(it.Next()))
	}
	return shown
}

// quoted is JSON with no more escapes than JSON needs.
func quoted(text string) string {
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(text); err != nil {
		panic(err)
	}
	return strings.NewReplacer(`\u2028`, "\u2028", `\u2029`, "\u2029").Replace(strings.TrimSuffix(buffer.String(), "\n"))
}
