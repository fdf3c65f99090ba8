// Package prototest has messages for tests of this folder: schemas compiled when the
// test runs, so that no test depends on a sample service, and generators of messages.
//
// It is not for users and may change with any version.
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

// File compiles one of the schemas of this folder.
func File(tb testing.TB, name string) protoreflect.FileDescriptor {
	tb.Helper()
	file, err := Compile(name)
	if err != nil {
		tb.Fatal(err)
	}
	return file
}

// Compile is File for examples, which have no testing.TB. A schema is compiled once, for
// descriptors are compared by identity.
func Compile(name string) (protoreflect.FileDescriptor, error) {
	once, _ := compiled.LoadOrStore(name, sync.OnceValues(func() (protoreflect.FileDescriptor, error) { return compile(name) }))
	return once.(func() (protoreflect.FileDescriptor, error))()
}

var compiled sync.Map // by name, of func() (protoreflect.FileDescriptor, error)

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

// Message returns the descriptor of a message of a file.
func Message(tb testing.TB, file, name string) protoreflect.MessageDescriptor {
	tb.Helper()
	d := File(tb, file).Messages().ByName(protoreflect.Name(name))
	if d == nil {
		tb.Fatalf("%s has no message %s", file, name)
	}
	return d
}
