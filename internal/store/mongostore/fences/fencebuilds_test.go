package fences_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/integration/localmongo"
	"dbcontroller.dev/internal/store/mongostore/conn"
	"dbcontroller.dev/internal/store/mongostore/storetest"
	"dbcontroller.dev/record"
)

// builds is a server on which index builds can be stopped in the middle.
type builds struct {
	*storetest.Bench
	t *testing.T
}

func (b builds) hang(on bool) {
	b.t.Helper()
	mode := "off"
	if on {
		mode = "alwaysOn"
	}
	err := b.Raw.Client().Database("admin").RunCommand(b.t.Context(), bson.D{
		{Key: "configureFailPoint", Value: "hangAfterStartingIndexBuild"}, {Key: "mode", Value: mode},
	}).Err()
	if err != nil {
		b.t.Fatal(err)
	}
}

// begin starts a build that does not end by itself, and returns once it runs.
func (b builds) begin(coll string) (ended chan error) {
	b.t.Helper()
	b.hang(true)
	ended = make(chan error, 1)
	go func() {
		ended <- b.Raw.RunCommand(context.WithoutCancel(b.t.Context()), bson.D{
			{Key: "createIndexes", Value: coll},
			{Key: "indexes", Value: bson.A{
				bson.D{{Key: "key", Value: bson.D{{Key: "x", Value: 1}}}, {Key: "name", Value: "x_1"}},
				bson.D{{Key: "key", Value: bson.D{{Key: "y", Value: 1}}}, {Key: "name", Value: "y_1"}},
			}},
		}).Err()
	}()
	for {
		running, err := b.Building(b.t.Context(), coll)
		if err != nil {
			b.t.Fatal(err)
		}
		if len(running) > 0 {
			return ended
		}
		if err := b.t.Context().Err(); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b builds) write(coll string) error {
	_, err := b.Raw.Collection(coll).InsertOne(b.t.Context(), bson.D{})
	return err
}

func (b builds) fenceFor(d time.Duration, f record.Fence) error {
	ctx, cancel := context.WithTimeout(b.t.Context(), d)
	defer cancel()
	return b.Fence(ctx, f)
}

// TestIndexBuilds: an index build holds up fences of every class for as long as it takes;
// it is known beforehand, and what gives writes back does not wait for it.
func TestIndexBuilds(t *testing.T) {
	srv := storetest.Start(t, localmongo.Options{TestCommands: true, Own: true})
	hindrance := func(b builds, tok record.Token, want bool) {
		t.Helper()
		found, err := b.Hindrances(t.Context(), []record.Token{tok})
		text := strings.Join(whats(found), "; ")
		if err != nil || want != strings.Contains(text, "the build of index x_1, y_1 on ") || !want && text != "" {
			t.Errorf("hindrances of %s: %q, %v", tok.Name, text, err)
		}
	}
	within := func(what string, d time.Duration, do func() error) {
		t.Helper()
		start := time.Now()
		if err := do(); err != nil || time.Since(start) > d {
			t.Fatalf("%s: %v after %s", what, err, time.Since(start))
		}
	}
	// Of a build that a fence met, which is still the same server.
	pid := srv.Nodes()[0].Pid()

	t.Run("rename", func(t *testing.T) {
		b := builds{storetest.BenchAt(t, srv.URI(), "renamed"), t}
		tok := b.Managed(t, record.Shape{})
		hindrance(b, tok, false)
		ended := b.begin(tok.Name)
		hindrance(b, tok, true)
		f := record.Fence{Class: record.FenceUUID, Token: tok, To: "things.n2"}
		if err := b.fenceFor(300*time.Millisecond, f); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("fence during a build: %v", err)
		}
		within("giving the fence up", time.Minute, func() error {
			moved, err := b.Prevent(t.Context(), f)
			if moved {
				t.Error("it has moved")
			}
			return err
		})
		if err := b.write(tok.Name); err != nil {
			t.Errorf("write to the name that it keeps: %v", err)
		}
		b.hang(false)
		if err := <-ended; err != nil {
			t.Errorf("the build: %v", err)
		}
		// The rename as a driver sends it that slept.
		if err := b.Rename(t.Context(), tok.Name, f.To); !conn.HasCode(err, conn.CodeNamespaceExists) {
			t.Errorf("late rename: %v", err)
		}
		if err := b.write(f.To); !conn.HasCode(err, conn.CodeValidation) {
			t.Errorf("write to the name that is taken: %v", err)
		}
		hindrance(b, tok, false)
		f.To = "things.n3"
		if err := b.Fence(t.Context(), f); err != nil {
			t.Fatal(err)
		}
		tok.Name = f.To
		if err := b.Drop(t.Context(), tok); err != nil {
			t.Fatal(err)
		}
		for _, name := range b.AllNames(t) {
			if strings.HasPrefix(name, "things.") {
				t.Errorf("left behind: %s", name)
			}
		}
	})

	for _, class := range []record.FenceClass{record.FenceView, record.FenceValidator} {
		t.Run(string(class), func(t *testing.T) {
			b := builds{storetest.BenchAt(t, srv.URI(), "by_"+string(class)), t}
			tok := b.Fixed(t, "orders")
			have, restore, err := b.Prepare(t.Context(), tok, class)
			if err != nil || have != class {
				t.Fatal(have, err)
			}
			first := record.Fence{Class: class, Token: tok, To: "orders.n1", Restore: restore}
			ended := b.begin("orders")
			hindrance(b, tok, true)
			if err := b.fenceFor(300*time.Millisecond, first); !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("fence during a build: %v", err)
			}
			if now := srv.Nodes()[0].Pid(); now != pid {
				t.Fatal("the server has died of it")
			}
			within("unfence of a fence that was not set", time.Minute, func() error { return b.Unfence(t.Context(), first) })
			if err := b.write("orders"); err != nil {
				t.Errorf("write: %v", err)
			}
			b.hang(false)
			if err := <-ended; err != nil {
				t.Errorf("a build that did not keep anybody from writing: %v", err)
			}

			second := record.Fence{Class: class, Token: tok, To: "orders.n2", Restore: restore}
			b.Run(t, bson.D{{Key: "dropIndexes", Value: "orders"}, {Key: "index", Value: "*"}})
			if err := b.Fence(t.Context(), second); err != nil {
				t.Fatal(err)
			}
			at := "orders"
			if second.Renames() {
				at = second.To
			}
			ended = b.begin(at)
			within("unfence under a build", time.Minute, func() error { return b.Unfence(t.Context(), second) })
			if err := b.write("orders"); err != nil {
				t.Errorf("write: %v", err)
			}
			if err := <-ended; !conn.HasCode(err, 276) {
				t.Errorf("the build that kept clients from writing ended with %v, want IndexBuildAborted", err)
			}
			b.hang(false)
			if now := srv.Nodes()[0].Pid(); now != pid {
				t.Error("the server has died of it")
			}
		})
	}
}

// whats are hindrances in words.
func whats(all []record.Hindrance) (out []string) {
	for _, h := range all {
		out = append(out, h.What)
	}
	return out
}
