package library_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"

	v1 "dbcontroller.dev/gen/library/v1"
	"dbcontroller.dev/gen/library/v1/libraryv1connect"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/gen/library/v2/libraryv2connect"
	"dbcontroller.dev/integration/library"
)

// books is the collection of the books of a version.
func (s *system) books(version string) *mongo.Collection {
	s.t.Helper()
	names, err := s.db[version].ListCollectionNames(s.ctx, bson.D{{Key: "name", Value: bson.Regex{Pattern: `^books\.n[0-9]+$`}}})
	if err != nil || len(names) != 1 {
		s.t.Fatalf("collections of books of %s are %v, %v", version, names, err)
	}
	return s.db[version].Collection(names[0])
}

// indexed checks that a version has the indexes of the fields that it declares.
func (s *system) indexed(version string) {
	s.t.Helper()
	specs, err := s.books(version).Indexes().ListSpecifications(s.ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	var have []string
	for _, spec := range specs {
		have = append(have, spec.Name)
	}
	for _, field := range []string{"title", map[string]string{"v1": "library", "v2": "branch"}[version]} {
		if !slices.Contains(have, "dbc_by_"+field) {
			s.t.Errorf("%s has the indexes %v, and none of %s", version, have, field)
		}
	}
}

// list asks a server for books in the words of a version.
func (s *system) list(version, filter, order string, size int32) (n int, err error) {
	if version == "v1" {
		res, err := libraryv1connect.NewLibraryServiceClient(s.http, s.servers[0]).ListBooks(s.ctx, connect.NewRequest(&v1.ListRequest{Filter: filter, OrderBy: order, PageSize: size}))
		if err != nil {
			return 0, err
		}
		return len(res.Msg.GetBooks()), nil
	}
	res, err := libraryv2connect.NewLibraryServiceClient(s.http, s.servers[0]).ListBooks(s.ctx, connect.NewRequest(&v2.ListRequest{Filter: filter, OrderBy: order, PageSize: size}))
	if err != nil {
		return 0, err
	}
	return len(res.Msg.GetBooks()), nil
}

// planned lists books of the active version by declared fields, and checks how the database has
// executed that: by the index, without a scan of the collection and without sorting. What it
// executed is in its profile, which has the stages that explain shows.
func (s *system) planned(version string) {
	s.t.Helper()
	s.indexed(version) // a switch has waited for them
	other := map[string]string{"v1": `library == "libraries/main"`, "v2": `branch == "branches/main"`}[version]
	for _, req := range []struct{ filter, order, index string }{
		{`title == "Seed 3"`, "", "dbc_by_title"},
		{`title in ["Seed 3", "Seed 5"]`, "", "dbc_by_title"},
		{other, "", map[string]string{"v1": "dbc_by_library", "v2": "dbc_by_branch"}[version]},
		{"", "title", "dbc_by_title"},
		{"", "title desc", "dbc_by_title"},
	} {
		// Tombstones have no fields, so an index has them under null. They go some time after a switch.
		tombstones, err := s.books(version).CountDocuments(s.ctx, bson.D{{Key: "_dbc.x", Value: true}})
		if err != nil {
			s.t.Fatal(err)
		}
		s.profile(version, 2)
		n, err := s.list(version, req.filter, req.order, 5)
		s.profile(version, 0)
		if err != nil || n == 0 {
			s.t.Fatalf("%s: %q by %q: %d books, %v", version, req.filter, req.order, n, err)
		}
		books := s.books(version)
		cursor, err := s.db[version].Collection("system.profile").Find(s.ctx, bson.D{{Key: "op", Value: "query"}, {Key: "command.find", Value: books.Name()}})
		if err != nil {
			s.t.Fatal(err)
		}
		var ran []bson.Raw
		if err := cursor.All(s.ctx, &ran); err != nil {
			s.t.Fatal(err)
		}
		byIndex := 0
		for _, entry := range ran {
			stages := stagesOf(entry.Lookup("execStats").Document())
			if slices.Contains(stages, "COLLSCAN") || slices.Contains(stages, "SORT") {
				s.t.Errorf("%s: %q by %q runs %v", version, req.filter, req.order, stages)
			}
			if slices.Contains(stages, "IXSCAN "+req.index) {
				byIndex++
				examined, _ := entry.Lookup("docsExamined").AsInt64OK()
				if returned, ok := entry.Lookup("nreturned").AsInt64OK(); !ok || examined > returned+1+tombstones {
					s.t.Errorf("%s: %q by %q examines %d documents and returns %d, with %d tombstones", version, req.filter, req.order, examined, returned, tombstones)
				}
			}
		}
		if byIndex == 0 {
			s.t.Errorf("%s: %q by %q is not read by %s: %v", version, req.filter, req.order, req.index, ran)
		}
		if err := s.db[version].Collection("system.profile").Drop(s.ctx); err != nil {
			s.t.Fatal(err)
		}
	}
}

func (s *system) profile(version string, level int) {
	s.t.Helper()
	if err := s.db[version].RunCommand(s.ctx, bson.D{{Key: "profile", Value: level}}).Err(); err != nil {
		s.t.Fatal(err)
	}
}

// stagesOf are the stages of an execution, with the indexes that they read.
func stagesOf(plan bson.Raw) (out []string) {
	stage, _ := plan.Lookup("stage").StringValueOK()
	if index, ok := plan.Lookup("indexName").StringValueOK(); ok {
		stage += " " + index
	}
	out = append(out, stage)
	if input, ok := plan.Lookup("inputStage").DocumentOK(); ok {
		out = append(out, stagesOf(input)...)
	}
	if inputs, ok := plan.Lookup("inputStages").ArrayOK(); ok {
		values, _ := inputs.Values()
		for _, v := range values {
			out = append(out, stagesOf(v.Document())...)
		}
	}
	return out
}

// BenchmarkIndexedLists asks a server for one of 12,000 books by its title, and for the first page
// of all in the order of their titles, with indexes of declared fields and without.
func BenchmarkIndexedLists(b *testing.B) {
	const most = 12_000
	for _, declared := range []bool{false, true} {
		service := library.Service
		service.Versions = slices.Clone(service.Versions)
		name := "without"
		if declared {
			name = "indexed"
			service.Versions[0].Indexes = map[string][]string{"books": {"title", "library"}}
		}
		b.Run(name, func(b *testing.B) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
			defer cancel()
			s := startService(ctx, b, service)
			books := s.books("v1")
			docs := make([]any, most)
			for i := range docs {
				name := fmt.Sprintf("books/b%05d", i)
				docs[i] = bson.D{{Key: "_id", Value: name}, {Key: "name", Value: name}, {Key: "title", Value: fmt.Sprintf("Title %d", most-i)}, {Key: "library", Value: "libraries/main"}, {Key: "revision", Value: int64(1)}}
			}
			if _, err := books.InsertMany(ctx, docs); err != nil {
				b.Fatal(err)
			}
			if declared {
				s.eventually("the index is built", func() error {
					specs, err := books.Indexes().ListSpecifications(ctx)
					if err == nil && len(specs) < 3 {
						err = fmt.Errorf("indexes %v", specs)
					}
					return err
				})
			}
			for _, req := range []struct{ name, filter, order string }{{"filter", `title == "Title 5000"`, ""}, {"order", "", "title"}} {
				b.Run(req.name, func(b *testing.B) {
					for b.Loop() {
						n, err := s.list("v1", req.filter, req.order, 100)
						if err != nil {
							b.Skipf("refused: %v", err)
						}
						if n == 0 {
							b.Fatal("no books")
						}
					}
				})
			}
		})
	}
}
