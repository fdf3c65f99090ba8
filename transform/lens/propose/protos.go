package propose

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bufbuild/protocompile"
	_ "google.golang.org/genproto/googleapis/api/annotations" // google/api/*.proto, which APIs import
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Proto compiles a proto file. Its imports are looked up in the folders, as protoc does with -I,
// then in the folder of the file. The imports of google/protobuf and google/api are built in.
func Proto(ctx context.Context, file string, folders []string) (protoreflect.FileDescriptor, error) {
	if _, err := os.Stat(file); err != nil {
		return nil, err
	}
	// Imports name a file relative to a folder. A file must have one name only, or its messages
	// would be there twice.
	name, roots := filepath.Base(file), append(slices.Clone(folders), filepath.Dir(file))
	for _, folder := range folders {
		if rel, err := filepath.Rel(folder, file); err == nil && filepath.IsLocal(rel) {
			name = filepath.ToSlash(rel)
			break
		}
	}
	builtIn := protocompile.ResolverFunc(func(path string) (protocompile.SearchResult, error) {
		d, err := protoregistry.GlobalFiles.FindFileByPath(path)
		if err != nil {
			return protocompile.SearchResult{}, err
		}
		return protocompile.SearchResult{Desc: d}, nil
	})
	compiler := protocompile.Compiler{
		Resolver: protocompile.WithStandardImports(protocompile.CompositeResolver{&protocompile.SourceResolver{ImportPaths: roots}, builtIn}),
		// Comments state the patterns of names.
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	files, err := compiler.Compile(ctx, name)
	if errors.Is(err, protoregistry.NotFound) || errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w: give the folder of its imports with --proto-path", file, err)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return files[0], nil
}

// Resources finds the resources of two versions of an API. A resource is a message M for which a
// service has a method GetM; without services, each message that no other one uses. Names of the
// form Old=New, or Name, choose among them, and pair messages whose name changed. It returns an
// error if there is nothing to pair.
func Resources(old, now protoreflect.FileDescriptor, names []string) (out []Message, err error) {
	if len(names) == 0 {
		for _, m := range resourcesOf(old) {
			if now.Messages().ByName(m) != nil {
				names = append(names, string(m))
			}
		}
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s and %s have no resource of the same name: name the messages with --message OLD=NEW", old.Path(), now.Path())
	}
	for _, name := range names {
		was, is, both := strings.Cut(name, "=")
		if !both {
			is = was
		}
		m := Message{Old: old.Messages().ByName(protoreflect.Name(was)), New: now.Messages().ByName(protoreflect.Name(is))}
		if m.Old == nil {
			return nil, fmt.Errorf("%s has no message %s", old.Path(), was)
		}
		if m.New == nil {
			return nil, fmt.Errorf("%s has no message %s", now.Path(), is)
		}
		m.OldPattern, m.NewPattern = pattern(m.Old), pattern(m.New)
		out = append(out, m)
	}
	return out, nil
}

func resourcesOf(file protoreflect.FileDescriptor) (out []protoreflect.Name) {
	services, messages := file.Services(), file.Messages()
	for i := range services.Len() {
		methods := services.Get(i).Methods()
		for j := range methods.Len() {
			if name, ok := strings.CutPrefix(string(methods.Get(j).Name()), "Get"); ok && messages.ByName(protoreflect.Name(name)) != nil {
				out = append(out, protoreflect.Name(name))
			}
		}
	}
	if services.Len() > 0 {
		return out
	}
	used := map[protoreflect.FullName]bool{}
	for i := range messages.Len() {
		fields := messages.Get(i).Fields()
		for j := range fields.Len() {
			if m := fields.Get(j).Message(); m != nil && m.FullName() != messages.Get(i).FullName() {
				used[m.FullName()] = true
			}
		}
	}
	for i := range messages.Len() {
		if m := messages.Get(i); !used[m.FullName()] {
			out = append(out, m.Name())
		}
	}
	return out
}

// named matches a pattern of names in a comment.
var named = regexp.MustCompile(`[a-z][A-Za-z0-9_]*(?:/(?:\{[a-z][A-Za-z0-9_]*\}|[a-z][A-Za-z0-9_]*))*/\{[a-z][A-Za-z0-9_]*\}`)

// pattern returns the pattern of a resource's names: that of the option google.api.resource, or the
// first in the comments of the message and of its field name. "" means that neither has one.
func pattern(m protoreflect.MessageDescriptor) string {
	found := ""
	m.Options().ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		if f.FullName() != "google.api.resource" {
			return true
		}
		if list := v.Message().Get(f.Message().Fields().ByName("pattern")).List(); list.Len() > 0 {
			found = list.Get(0).String()
		}
		return false
	})
	if found != "" {
		return found
	}
	places := []protoreflect.Descriptor{m}
	if f := m.Fields().ByName("name"); f != nil {
		places = append(places, f)
	}
	for _, d := range places {
		comments := m.ParentFile().SourceLocations().ByDescriptor(d)
		if found := named.FindString(comments.LeadingComments + " " + comments.TrailingComments); found != "" {
			return found
		}
	}
	return ""
}
