// Package terminal is how commands print: numbers, times and tables for people, JSON for programs,
// the progress of long calls, and texts of others that cannot control the terminal.
package terminal

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/proto"

	"dbcontroller.dev/internal/control/deployment/api"
)

// JSON writes a message as JSON on one line, in the form of the API.
func JSON(w io.Writer, m proto.Message) error {
	b, err := api.ToJSON(m)
	if err != nil {
		return fmt.Errorf("encode JSON: %w", err)
	}
	return Write(w, append(b, '\n'))
}

// Write writes rendered output. It fails if standard output is a closed pipe.
func Write(w io.Writer, b []byte) error {
	if _, err := w.Write(b); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// Table starts a table with the given columns, separated by tabs.
func Table(b *bytes.Buffer, columns string) *tabwriter.Writer {
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, columns)
	return t
}

// Flush ends a table. It writes to memory and cannot fail.
func Flush(t *tabwriter.Writer) { _ = t.Flush() }

// Count formats a number with commas between the thousands.
func Count(n int64) string {
	s := strconv.FormatInt(n, 10)
	first := 1
	if n < 0 {
		first = 2
	}
	for i := len(s) - 3; i >= first; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Millis formats a duration in milliseconds, to 0.1 s from one second on.
func Millis(ms int64) string {
	if ms < 1000 {
		return strconv.FormatInt(ms, 10) + " ms"
	}
	return (time.Duration(ms) * time.Millisecond).Round(100 * time.Millisecond).String()
}

// Seconds formats seconds as hours, minutes and seconds.
func Seconds(seconds int64) string { return (time.Duration(seconds) * time.Second).String() }

// Time formats a time to the second in UTC. It returns text that is no time unchanged.
func Time(at string) string {
	t, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return cmp.Or(at, "-")
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// User returns who runs the command, as USER@HOST.
func User() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	return name + "@" + host
}
