// Package zaplog lets packages for users log by log/slog while our programs log by zap. New passes what
// an slog.Logger gets on to a zap.Logger, and From does the reverse. The package configures neither.
//
// It is not for users and may change with any version.
package zaplog

import (
	"context"
	"log/slog"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a logger that writes to log. Attributes become fields of the same name, those in a group
// group.name.
func New(log *zap.Logger) *slog.Logger { return slog.New(handler{core: log.Core(), name: log.Name()}) }

// handler is an slog.Handler over a zap core.
type handler struct {
	core   zapcore.Core
	name   string // of the logger
	prefix string // of the open groups, each with its dot
}

func (h handler) Enabled(_ context.Context, l slog.Level) bool { return h.core.Enabled(level(l)) }

func (h handler) Handle(_ context.Context, r slog.Record) error {
	entry := zapcore.Entry{Level: level(r.Level), Time: r.Time, LoggerName: h.name, Message: r.Message}
	// The core decides: some write entries of a logger whatever their level.
	checked := h.core.Check(entry, nil)
	if checked == nil {
		return nil
	}
	fields := make([]zapcore.Field, 0, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		fields = append(fields, h.fields(a)...)
		return true
	})
	checked.Write(fields...)
	return nil
}

func (h handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var fields []zapcore.Field
	for _, a := range attrs {
		fields = append(fields, h.fields(a)...)
	}
	h.core = h.core.With(fields)
	return h
}

func (h handler) WithGroup(name string) slog.Handler {
	if name != "" {
		h.prefix += name + "."
	}
	return h
}

// fields returns the zap fields of one attribute. A group has several.
func (h handler) fields(a slog.Attr) []zapcore.Field {
	v, key := a.Value.Resolve(), h.prefix+a.Key
	switch v.Kind() {
	case slog.KindGroup:
		inner := h
		if a.Key != "" {
			inner.prefix = key + "."
		}
		var out []zapcore.Field
		for _, member := range v.Group() {
			out = append(out, inner.fields(member)...)
		}
		return out
	case slog.KindString:
		return []zapcore.Field{zap.String(key, v.String())}
	case slog.KindInt64:
		return []zapcore.Field{zap.Int64(key, v.Int64())}
	case slog.KindUint64:
		return []zapcore.Field{zap.Uint64(key, v.Uint64())}
	case slog.KindFloat64:
		return []zapcore.Field{zap.Float64(key, v.Float64())}
	case slog.KindBool:
		return []zapcore.Field{zap.Bool(key, v.Bool())}
	case slog.KindDuration:
		return []zapcore.Field{zap.Duration(key, v.Duration())}
	case slog.KindTime:
		return []zapcore.Field{zap.Time(key, v.Time())}
	default:
		// Errors come here, and zap writes their text.
		return []zapcore.Field{zap.Any(key, v.Any())}
	}
}

// level is the zap level of an slog level: the highest one that is not above it.
func level(l slog.Level) zapcore.Level {
	switch {
	case l >= slog.LevelError:
		return zapcore.ErrorLevel
	case l >= slog.LevelWarn:
		return zapcore.WarnLevel
	case l >= slog.LevelInfo:
		return zapcore.InfoLevel
	default:
		return zapcore.DebugLevel
	}
}
