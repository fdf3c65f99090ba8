package zaplog

import (
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
