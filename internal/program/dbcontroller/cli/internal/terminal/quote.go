package terminal

import (
	"context"
	"fmt"
	"io"
	"unicode/utf8"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"dbcontroller.dev/internal/base/printable"
)

// Printf prints like fmt.Fprintf, with each text among args made printable. So a text that a user or
// a database login chose ends no line and no column. The format may have lines and columns.
func Printf(w io.Writer, format string, args ...any) {
	plain := make([]any, len(args))
	for i, a := range args {
		switch a.(type) {
		case string, error, fmt.Stringer:
			plain[i] = printable.Line(fmt.Sprint(a))
		default:
			plain[i] = a
		}
	}
	fmt.Fprintf(w, format, plain...)
}

// Quoting is an interceptor that makes all texts of received messages printable.
type Quoting struct{}

func (Quoting) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		res, err := next(ctx, req)
		if err == nil {
			Quote(res.Any())
		}
		return res, err
	}
}

func (Quoting) WrapStreamingClient(next connect.StreamingClientFunc) connect.StreamingClientFunc {
	return func(ctx context.Context, spec connect.Spec) connect.StreamingClientConn {
		return quotingConn{next(ctx, spec)}
	}
}

func (Quoting) WrapStreamingHandler(next connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return next
}

type quotingConn struct{ connect.StreamingClientConn }

func (c quotingConn) Receive(m any) error {
	err := c.StreamingClientConn.Receive(m)
	if err == nil {
		Quote(m)
	}
	return err
}

func Quote(m any) {
	if m, ok := m.(proto.Message); ok {
		quoteMessage(m.ProtoReflect())
	}
}

func quoteMessage(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		text, message := f.Kind() == protoreflect.StringKind, f.Message() != nil
		switch {
		case f.IsMap():
			quoteMap(f, v.Map())
		case f.IsList():
			for i := range v.List().Len() {
				if text {
					v.List().Set(i, protoreflect.ValueOfString(printable.Line(v.List().Get(i).String())))
				} else if message {
					quoteMessage(v.List().Get(i).Message())
				}
			}
		case text:
			m.Set(f, protoreflect.ValueOfString(printable.Line(v.String())))
		case message:
			quoteMessage(v.Message())
		}
		return true
	})
}

func quoteMap(f protoreflect.FieldDescriptor, m protoreflect.Map) {
	keys, values := f.MapKey().Kind() == protoreflect.StringKind, f.MapValue()
	// Two keys may become equal. Collect the renamed keys, and do not change them while ranging.
	next := map[string]protoreflect.Value{}
	m.Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
		if values.Kind() == protoreflect.StringKind {
			v = protoreflect.ValueOfString(printable.Line(v.String()))
			m.Set(k, v)
		} else if values.Message() != nil {
			quoteMessage(v.Message())
		}
		if name := k.String(); keys && printable.Line(name) != name {
			m.Clear(k)
			next[printable.Line(name)] = v
		}
		return true
	})
	for k, v := range next {
		m.Set(protoreflect.ValueOfString(k).MapKey(), v)
	}
}

// Quoted is a writer that keeps texts from controlling the terminal. It covers commands that read
// databases themselves and so receive no messages to quote.
type Quoted struct {
	io.Writer
	rest *string // bytes of an incomplete character
	json bool    // output is JSON, with JSON's escapes
}

func (q Quoted) Write(p []byte) (int, error) {
	text := *q.rest + string(p)
	whole := len(text)
	// A write may end within a character. Keep its bytes for the next write, or they would be
	// quoted as invalid.
	for back := 1; back < utf8.UTFMax && back <= len(text); back++ {
		if at := len(text) - back; utf8.RuneStart(text[at]) {
			if !utf8.FullRuneInString(text[at:]) {
				whole = at
			}
			break
		}
	}
	*q.rest = text[whole:]
	form := printable.Lines
	if q.json {
		form = printable.JSON
	}
	if _, err := io.WriteString(q.Writer, form(text[:whole])); err != nil {
		return 0, err
	}
	// Report all bytes as written: kept bytes are not lost, and a short count is an error.
	return len(p), nil
}

// QuoteOutput quotes everything that a command prints. Standard error is always text for people,
// even if standard output is JSON.
func QuoteOutput(cmd *cobra.Command) {
	f := cmd.Flags().Lookup("json")
	if _, is := cmd.OutOrStdout().(Quoted); !is {
		cmd.SetOut(Quoted{cmd.OutOrStdout(), new(string), f != nil && f.Value.String() == "true"})
		cmd.SetErr(Quoted{cmd.ErrOrStderr(), new(string), false})
	}
}

// Bare returns the writer below quoted, for terminal commands such as redrawing a line.
func Bare(w io.Writer) io.Writer {
	if q, ok := w.(Quoted); ok {
		return q.Writer
	}
	return w
}
