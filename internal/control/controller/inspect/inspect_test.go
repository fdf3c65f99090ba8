package inspect

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.mongodb.org/mongo-driver/v2/bson"

	"dbcontroller.dev/record"
	"dbcontroller.dev/upgradestate"
)

// space is a database with one record in each kind but empty ones.
type space struct {
	asked int // for sizes
	err   error
	doc   bson.Raw
	empty int // pages that come before the record
}

func (s *space) Size(context.Context, record.Token) (record.Size, error) {
	s.asked++
	return record.Size{Records: 3, Bytes: 300}, s.err
}

func (s *space) Split(context.Context, record.Token, int) ([]record.Range, error) {
	return []record.Range{{}}, s.err
}

func (s *space) Scan(context.Context, record.ScanRequest) (record.Page, error) {
	if s.empty--; s.empty >= 0 {
		return record.Page{Next: record.Cursor{1}}, nil
	}
	if s.doc == nil {
		return record.Page{Done: true}, nil
	}
	return record.Page{Records: []record.Record{{Doc: s.doc}}}, nil
}

func doc(t *testing.T, value string) bson.Raw {
	t.Helper()
	raw, err := bson.Marshal(bson.D{{Key: "_id", Value: 1}, {Key: "mail", Value: value}})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// inspector has v1 with one kind, in db; and v2 in a database that is not configured here.
func inspector(db *space) *Inspector {
	d := upgradestate.Deployment{CurrentVersion: "v1", Namespaces: []upgradestate.Namespace{
		{Version: "v1", Kinds: []upgradestate.Kind{{Kind: "users", Physical: "users.n1"}}},
		{Version: "v2", Kinds: []upgradestate.Kind{{Kind: "people", Physical: "people.n1"}}},
	}}
	return &Inspector{
		Deployment: func(context.Context) (upgradestate.Deployment, error) { return d, nil },
		Space: func(version string) Space {
			if version == "v1" {
				return db
			}
			return nil
		},
		Encrypted: func(string) bool { return false }, Records: true,
	}
}

// TestSizes asks each database once for many callers, and says which size it does not know.
func TestSizes(t *testing.T) {
	t.Parallel()
	db := &space{}
	i := inspector(db)
	for range 3 {
		got, err := i.Sizes(t.Context())
		if err != nil || len(got) != 2 || got[0].Version != "v1" || got[0].Kind != "users" || got[0].Records != 3 || got[0].Bytes != 300 ||
			got[1].Version != "v2" || !strings.Contains(got[1].Problem, "not configured here") {
			t.Fatal(got, err)
		}
	}
	if db.asked != 1 {
		t.Errorf("the database was asked %d times within %s", db.asked, sizesFor)
	}
	got, err := inspector(&space{err: errors.New("it is locked")}).Sizes(t.Context())
	if err != nil || got[0].Problem != "it is locked" {
		t.Error(got, err)
	}
}

// TestSample shows a record only where that is allowed.
func TestSample(t *testing.T) {
	t.Parallel()
	mail := "a@example.com"
	for name, tc := range map[string]struct {
		db            space
		version, kind string
		change        func(*Inspector)
		record, err   string
	}{
		"a record":            {db: space{doc: doc(t, mail)}, kind: "users", record: mail},
		"the only kind":       {db: space{doc: doc(t, mail)}, record: mail},
		"behind empty pages":  {db: space{doc: doc(t, mail), empty: 2}, record: mail},
		"none":                {},
		"not allowed":         {db: space{doc: doc(t, mail)}, change: func(i *Inspector) { i.Records = false }, err: "api.records: true"},
		"encrypted":           {db: space{doc: doc(t, mail)}, change: func(i *Inspector) { i.Encrypted = func(string) bool { return true } }, err: "may be encrypted"},
		"too large":           {db: space{doc: doc(t, strings.Repeat("x", showable))}, err: "at most 102400 are shown"},
		"another kind":        {kind: "people", err: "one of its kinds: users"},
		"an unknown version":  {version: "v7", err: `kind "" of "v7"`},
		"no database here":    {version: "v2", err: "not configured here"},
		"a database in error": {db: space{err: errors.New("it is locked")}, err: "it is locked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := inspector(&tc.db)
			if tc.change != nil {
				tc.change(i)
			}
			version := tc.version
			if version == "" {
				version = "v1"
			}
			got, err := i.Sample(t.Context(), version, tc.kind)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), mail) {
					t.Errorf("%v, %v; want an error with %q", got, err, tc.err)
				}
				return
			}
			if err != nil || got.Kind != "users" || !strings.Contains(got.Record, tc.record) || (got.Record == "") != (tc.record == "") {
				t.Errorf("%v, %v; want a record with %q", got, err, tc.record)
			}
		})
	}
}
