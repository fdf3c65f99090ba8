package copies_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"
	"google.golang.org/protobuf/proto"

	secretsv2 "dbcontroller.dev/gen/secrets/v2"
	"dbcontroller.dev/internal/engine/copies"
	"dbcontroller.dev/record"
	"dbcontroller.dev/resource/region"
	"dbcontroller.dev/vrunner"
)

// TestForeignNames: a region cannot put a copy under the name of another region. One that is there goes.
func TestForeignNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, s := newOwner(), newSpace(t)
		const own, foreign, none, late = "regions/eu/books/b", "regions/us/books/b", "others/o/books/b", "regions/asia/books/b"
		for _, name := range []string{own, foreign, none} {
			o.set(name, "eu's")
		}
		key := region.CopyKey("eu", foreign)
		old, err := bson.Marshal(bson.D{{Key: "_id", Value: key}, {Key: "title", Value: "old"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Store.Write(t.Context(), []record.Mutation{{Kind: region.CopiesKind("books"), Key: record.StringKey(key), Doc: old}}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		f := followKind(o, s, region.Kind{Collection: "regions"})
		go func() { ended <- f.Run(ctx) }()
		time.Sleep(time.Minute)
		o.set(late, "eu's")
		time.Sleep(time.Minute)
		if got := s.copied(t, "eu"); !maps.Equal(got, map[string]string{own: "eu's"}) {
			t.Errorf("copied %v", got)
		}
		if r := f.Report(); r.Left != 3 || !r.Away.IsZero() || !strings.Contains(r.Example, none) {
			t.Errorf("reported %+v", r)
		}
		o.set(late, "")
		o.set(none, "")
		time.Sleep(time.Minute)
		if r := f.Report(); r.Left != 1 || r.Example != foreign+`: its name has the region "us"` {
			t.Errorf("after deletes reported %+v", r)
		}
		stop()
		<-ended
	})
}

// TestRefusedRecords: a record that cannot be a copy has none, and the other copies go on. It is copied
// once it can be.
func TestRefusedRecords(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{strings.Repeat("x", 3<<20), "no", "unreadable"} {
		synctest.Test(t, func(t *testing.T) {
			o, s := newOwner(), newSpace(t)
			for i := range 30 {
				o.set(fmt.Sprintf("b%02d", i), "old")
			}
			ended := make(chan error, 1)
			run := func() (*copies.Follower, context.CancelFunc) {
				ctx, stop := context.WithCancel(t.Context())
				f := follow(o, s)
				go func() { ended <- f.Run(ctx) }()
				time.Sleep(time.Minute)
				return f, stop
			}
			want := func(f *copies.Follower, left ...string) {
				t.Helper()
				time.Sleep(time.Minute)
				all := maps.Clone(o.records)
				for _, name := range left {
					delete(all, name)
				}
				if got := s.copied(t, "eu"); !maps.Equal(got, all) {
					t.Errorf("copied %d records, want %d", len(got), len(all))
				}
				if r := f.Report(); r.Left != len(left) || !r.Whole || !r.Away.IsZero() || len(left) > 0 && !strings.HasPrefix(r.Example, left[0]+": ") {
					t.Errorf("reported %+v", r)
				}
			}
			f, stop := run()
			want(f)
			o.set("b05", bad)
			o.set("b06", "new")
			o.set("b07", "")
			want(f, "b05")
			stop()
			<-ended
			// The same in the first part of a watch: with a copy and without.
			o.set("b08", bad)
			f, stop = run()
			want(f, "b05", "b08")
			o.set("b05", "good again")
			want(f, "b08")
			o.set("b08", "")
			want(f)
			stop()
			<-ended
		})
	}
}

// TestUnreadableMessage: a message that is no record of the kind is an event like others.
func TestUnreadableMessage(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/connect+proto")
		_, _ = w.Write(make([]byte, 10)) // two empty messages
	}))
	defer srv.Close()
	m := secretsv2.File_secrets_v2_secrets_proto.Services().Get(0).Methods().ByName("WatchSecrets")
	reads, unreadable := 0, errors.New("no record of this kind")
	o := copies.NewOwner(srv.Client(), srv.URL, m, func(proto.Message) (vrunner.Event, record.Record, error) {
		if reads++; reads == 1 {
			return vrunner.Event{Type: vrunner.EventPut, Name: "b"}, record.Record{}, unreadable
		}
		return vrunner.Event{Type: vrunner.EventPut, Name: "c"}, record.Record{Doc: event("c", "x", "eu").Doc}, nil
	})
	s, err := o.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if ev, err := s.Next(t.Context()); err != nil || ev.Name != "b" || ev.Type != vrunner.EventPut || !errors.Is(ev.Refused, unreadable) {
		t.Errorf("read %+v, %v", ev, err)
	}
	if ev, err := s.Next(t.Context()); err != nil || ev.Name != "c" || ev.Refused != nil || ev.Doc == nil {
		t.Errorf("then read %+v, %v", ev, err)
	}
}
