package process

import (
	"bytes"
	"strings"
	"testing"

	"go.uber.org/zap/zapcore"

	"dbcontroller.dev/internal/access"
)

// TestAuditHasNoLevel: no level of the log silences the audit, and what else is logged goes by it.
func TestAuditHasNoLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[zapcore.Level]string{
		zapcore.DebugLevel: "call history refused debug info warn error",
		zapcore.InfoLevel:  "call history refused info warn error",
		zapcore.WarnLevel:  "call history refused warn error",
		zapcore.ErrorLevel: "call history refused error",
	} {
		var b bytes.Buffer
		log := newLogger(level, zapcore.AddSync(&b))
		log.Named(access.AuditLog).Info("call")
		log.Named("leader").Named(access.AuditLog).Info("history")
		log.With().Named(access.AuditLog).Warn("refused")
		log.Debug("debug")
		log.Info("info")
		log.Warn("warn")
		log.Named("auditor").Error("error")
		var got []string
		for line := range strings.Lines(b.String()) {
			_, text, _ := strings.Cut(line, `"msg":"`)
			text, _, _ = strings.Cut(text, `"`)
			got = append(got, text)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v, want %s", level, got, want)
		}
	}
}
