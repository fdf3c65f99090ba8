package copies_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/vrunner"
)

// TestHugeMessage: a message of another region that is larger than any record is not read.
func TestHugeMessage(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	var sent atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write(binary.BigEndian.AppendUint32([]byte{0}, size))
		// It fails once the client has given up.
		for chunk := make([]byte, 1<<20); sent.Load() < size; sent.Add(int64(len(chunk))) {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	m := secretsv2.File_secrets_v2_secrets_proto.Services().Get(0).Methods().ByName("WatchSecrets")
	o := copies.NewOwner(srv.Client(), srv.URL, m, func(proto.Message) (vrunner.Event, record.Record, error) {
		t.Error("the message is read")
		return vrunner.Event{}, record.Record{}, nil
	})
	s, err := o.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Next(t.Context()); connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), fmt.Sprint(size)) {
		t.Errorf("read with %v", err)
	}
}

// endless is an owner whose records of 1 MiB never end.
type endless struct{ read atomic.Int64 }

func (e *endless) Watch(context.Context) (copies.Stream, error) { return e, nil }
func (e *endless) Close()                                       {}
func (e *endless) Next(ctx context.Context) (copies.Event, error) {
	if err := ctx.Err(); err != nil {
		return copies.Event{}, err
	}
	return event(fmt.Sprintf("b%09d", e.read.Add(1)), strings.Repeat("x", 1<<20), "eu"), nil
}

// TestSlowDatabase: while a write waits, few records of the owner are read.
func TestSlowDatabase(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := &endless{}, newSpace(t)
		next := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		s.refuse = func() error {
			select {
			case <-next:
				return nil
			case <-ctx.Done():
				return errors.New("the end")
			}
		}
		ended := make(chan error, 1)
		go func() { ended <- follow(o, s).Run(ctx) }()
		next <- struct{}{} // the take-over
		for range 5 {
			before := o.read.Load()
			synctest.Wait()
			if n := o.read.Load() - before; n > 10 {
				t.Errorf("%d records of 1 MiB were read during one write", n)
			}
			next <- struct{}{}
		}
		synctest.Wait()
		if o.read.Load() < 8 {
			t.Errorf("only %d records were read", o.read.Load())
		}
		stop()
		<-ended
	})
}

// TestLargeCopies: the copies are compared in pages of bytes, whatever their number.
func TestLargeCopies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		large := string(bytes.Repeat([]byte("x"), 1<<20))
		for i := range 20 {
			o.set(fmt.Sprintf("b%02d", i), large)
		}
		for run := range 2 {
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- follow(o, s).Run(ctx) }()
			time.Sleep(time.Minute)
			stop()
			<-ended
			if got := s.copied(t, "eu"); !maps.Equal(got, o.records) {
				t.Errorf("%d copies, want %d", len(got), len(o.records))
			}
			if run == 0 {
				o.set("b03", "")
				s.writes = 0
			}
		}
		if s.writes > 12 { // most are beats
			t.Errorf("%d writes", s.writes)
		}
		if s.page == 0 || s.page > 5 {
			t.Errorf("a page had %d copies of 1 MiB", s.page)
		}
	})
}
