package process

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"dbcontroller.dev/internal/access"
	"dbcontroller.dev/internal/base/printable"
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

// TestLogIsNoCommandOfTheTerminal: text that others have chosen is one line of the log, without a
// character that a terminal obeys. A program that reads the line gets the text itself.
func TestLogIsNoCommandOfTheTerminal(t *testing.T) {
	t.Parallel()
	const evil = "größe\x1b[2J\u009b31m\u202e\u2028\x7f\U000e0001\nFORGED"
	var b bytes.Buffer
	newLogger(zapcore.InfoLevel, zapcore.AddSync(&b)).Info(evil, zap.String("key", evil))
	line, ok := strings.CutSuffix(b.String(), "\n")
	if !ok || strings.ContainsFunc(line, printable.Bad) || !strings.Contains(line, "größe") {
		t.Errorf("the log has %q", line)
	}
	var got struct{ Msg, Key string }
	if err := json.Unmarshal([]byte(line), &got); err != nil || got.Msg != evil || got.Key != evil {
		t.Errorf("a program reads %+q, %v", got, err)
	}
}
