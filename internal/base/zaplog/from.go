package zaplog

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// From returns a logger that writes to log. Fields become attributes of the same name, and the
// logger's name the attribute logger. Lines of a logger called always pass every level of log.
func From(log *slog.Logger, always string) *zap.Logger {
	return zap.New(core{handler: log.Handler(), always: always})
}

// core is a zapcore.Core over an slog.Handler.
type core struct {
	handler slog.Handler
	always  string // last part of the name of a logger that no level silences
}

// Enabled reports true for every level: Check decides, since only it knows the logger's name.
func (core) Enabled(zapcore.Level) bool { return true }

func (c core) With(fields []zapcore.Field) zapcore.Core {
	c.handler = c.handler.WithAttrs(attrs(fields))
	return c
}

func (c core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	name := e.LoggerName[strings.LastIndexByte(e.LoggerName, '.')+1:]
	if c.always != "" && name == c.always || c.handler.Enabled(context.Background(), slogLevel(e.Level)) {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (core) Sync() error { return nil }

// attrs returns the attributes of fields, in their order.
func attrs(fields []zapcore.Field) []slog.Attr {
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		// One field may have several values: an error also has a verbose form.
		enc := zapcore.NewMapObjectEncoder()
		f.AddTo(enc)
		for _, key := range slices.Sorted(maps.Keys(enc.Fields)) {
			out = append(out, slog.Any(key, enc.Fields[key]))
		}
	}
	return out
}

// slogLevel is the slog level of a zap level. zap's levels above error end the process, which slog
// has no level for.
func slogLevel(l zapcore.Level) slog.Level {
	switch {
	case l >= zapcore.ErrorLevel:
		return slog.LevelError
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	case l == zapcore.InfoLevel:
		return slog.LevelInfo
	default:
		return slog.LevelDebug
	}
}
