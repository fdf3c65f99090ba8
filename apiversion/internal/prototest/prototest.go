// Package prototest provides protobuf messages for the tests of package apiversion and its
// subpackages. It compiles its own schemas when a test runs, so no test depends on a sample
// service. It also generates random messages and filters. Begin to read at File and Draw.
package prototest

import (
	"context"
	"embed"
	"io"
	"sync"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/reflect/protoreflect"
)

//go:embed *.proto
var sources embed.FS

// File compiles one of the schemas in this folder. It fails the test on an error.
func File(tb testing.TB, name string) protoreflect.FileDescriptor {
	tb.Helper()
	file, err := Compile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// Compile is File for examples, which have no testing.TB. It compiles each schema once, because
// descriptors are compared by identity. It is safe for concurrent use.
func Compile(name string) (protoreflect.FileDescriptor, error) {
	// OnceValues also serves callers that arrive while the first one compiles.
	once, _ := compiled.LoadOrStore(name, sync.OnceValues(func() (protoreflect.FileDescriptor, error) { return compile(name) }))
	return once.(func() (protoreflect.FileDescriptor, error))()
}

var compiled sync.Map // name to func() (protoreflect.FileDescriptor, error)

func compile(name string) (protoreflect.FileDescriptor, error) {
	compiler := protocompile.Compiler{Resolver: protocompile.WithStandardImports(&protocompile.SourceResolver{
		Accessor: func(path string) (io.ReadCloser, error) { return sources.Open(path) },
	})}
	files, err := compiler.Compile(context.Background(), name)
	if err != nil {
		return nil, err
	}
	return files[0], nil
}

// Message returns the descriptor of a message in a schema. It fails the test if there is none.
func Message(tb testing.TB, file, name string) protoreflect.MessageDescriptor {
	tb.Helper()
	d := File(tb, file).Messages().ByName(protoreflect.Name(name))
	if d == nil {
		tb.Fatalf("%s has no message %s", file, name)
	}
	return d
}
