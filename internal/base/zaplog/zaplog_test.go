package zaplog

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// TestPassedOn: level, name, text and attributes of a line arrive, groups and inherited ones included.
func TestPassedOn(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.InfoLevel)
	log := New(zap.New(core).Named("server"))
	log.Debug("below the level")
	log.With("version", "v1").WithGroup("hub").Warn("stopped", slog.Any("error", errors.New("gone")), slog.Duration("after", time.Second),
		slog.Group("at", "epoch", uint64(7), "n", 3), slog.Bool("again", true))
	if logged.Len() != 1 {
		t.Fatalf("%d lines, want 1", logged.Len())
	}
	line := logged.All()[0]
	if line.Level != zap.WarnLevel || line.LoggerName != "server" || line.Message != "stopped" || line.Time.IsZero() {
		t.Errorf("line %+v", line.Entry)
	}
	want := map[string]any{"version": "v1", "hub.error": "gone", "hub.after": time.Second, "hub.at.epoch": uint64(7), "hub.at.n": int64(3), "hub.again": true}
	if diff := cmp.Diff(want, line.ContextMap()); diff != "" {
		t.Errorf("attributes (-want +got):\n%s", diff)
	}
}

// TestFrom: the same the other way round, and no level silences the logger that must not be.
func TestFrom(t *testing.T) {
	t.Parallel()
	var text bytes.Buffer
	plain := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey && a.Value.Time().IsZero() {
			t.Error("a line has no time")
		}
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := From(slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelError, ReplaceAttr: plain})), "audit")
	log.Warn("below the level")
	log.Named("server").With(zap.String("version", "v1")).Error("stopped", zap.Error(errors.New("gone")), zap.Duration("after", time.Second), zap.Strings("kinds", []string{"a", "b"}))
	log.Named("server").Named("audit").Info("call")
	log.Named("audits").Info("below the level")
	want := "level=ERROR msg=stopped version=v1 logger=server error=gone after=1s kinds=\"[a b]\"\nlevel=INFO msg=call logger=server.audit\n"
	if diff := cmp.Diff(want, text.String()); diff != "" {
		t.Errorf("lines (-want +got):\n%s", diff)
	}
}
