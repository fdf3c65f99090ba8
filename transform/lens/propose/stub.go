package propose

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/format"
	"path"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

//go:embed stub.go.tmpl
var stubText string

var stubTemplate = template.Must(template.New("stub").Funcs(template.FuncMap{"quote": strconv.Quote}).Parse(stubText))

// StubLens is one lens of a service.
type StubLens struct {
	Message  Message
	File     string   // of the lens, beside the stub
	From, To string   // kinds
	Sparse   []string // as Messages returns them
}

// version is what the template needs to know about one version.
type version struct {
	Name, Alias, Import, File, Title string
	Guessed                          bool // Import is a placeholder
	Services                         []serviceStub
}

type serviceStub struct {
	Name, Var string
	Tables    []tableStub
	Own       []string // methods that no table serves
}

type tableStub struct {
	Var, Message, Kind, Pattern string
	Sparse                      []string
}

// Stub drafts the Go code of a service that serves both versions: it declares the versions, and
// mounts the standard methods of its resources (package resource). Comments name the methods that
// need a handler. The code compiles where the code of the protos is generated, and where they have
// the option go_package.
func Stub(old, now protoreflect.FileDescriptor, lenses []StubLens) ([]byte, error) {
	name := path.Base(strings.ReplaceAll(string(old.Package().Parent()), ".", "/"))
	if name == "" || name == "." {
		name = "service"
	}
	v1, v2 := versionOf(old, "v1"), versionOf(now, "v2")
	if v1.Name == v2.Name {
		v1.Name, v2.Name = "v1", "v2"
	}
	if v1.Alias == v2.Alias {
		v1.Alias, v2.Alias = v1.Alias+"old", v2.Alias+"new"
	}
	v1.Title, v2.Title = "Old", "New"
	for _, l := range lenses {
		v1.add(old, l.Message.Old, l.From, l.Message.OldPattern, l.Sparse)
		v2.add(now, l.Message.New, l.To, l.Message.NewPattern, nil)
	}
	v1.finish(old)
	v2.finish(now)
	var out bytes.Buffer
	err := stubTemplate.Execute(&out, map[string]any{"Package": name, "Old": v1, "New": v2, "Lenses": lenses, "List": []version{v1, v2}})
	if err != nil {
		return nil, err
	}
	return format.Source(out.Bytes())
}

func versionOf(file protoreflect.FileDescriptor, fallback string) version {
	v := version{Name: string(file.Package().Name()), Import: "CHANGE-ME/gen/" + fallback, Alias: fallback, Guessed: true}
	if v.Name == "" {
		v.Name = fallback
	}
	if opts, ok := file.Options().(*descriptorpb.FileOptions); ok && opts.GetGoPackage() != "" {
		imported, alias, _ := strings.Cut(opts.GetGoPackage(), ";")
		if alias == "" {
			alias = path.Base(imported)
		}
		v.Import, v.Alias, v.Guessed = imported, alias, false
	}
	// As protoc-gen-go names the variable of a file.
	v.File = "File_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, file.Path())
	for i := range file.Services().Len() {
		s := string(file.Services().Get(i).Name())
		v.Services = append(v.Services, serviceStub{Name: s})
	}
	return v
}

// add puts the table of a resource into the service that has its method Get.
func (v *version) add(file protoreflect.FileDescriptor, m protoreflect.MessageDescriptor, kind, pattern string, sparse []string) {
	if pattern == "" {
		pattern = "{" + strings.ToLower(string(m.Name())) + "}"
	}
	for i := range v.Services {
		if file.Services().Get(i).Methods().ByName("Get"+m.Name()) == nil {
			continue
		}
		s := &v.Services[i]
		s.Tables = append(s.Tables, tableStub{
			Var: strings.ToLower(string(m.Name()[:1])) + string(m.Name()[1:]) + "Table", Message: string(m.Name()), Kind: kind, Pattern: pattern, Sparse: sparse,
		})
		return
	}
}

// finish names the variables of services, and finds the methods that no table serves.
func (v *version) finish(file protoreflect.FileDescriptor) {
	for i := range v.Services {
		s := &v.Services[i]
		s.Var = "service" + v.Title
		if len(v.Services) > 1 {
			s.Var = fmt.Sprintf("service%s%d", v.Title, i+1)
		}
		var standard []string
		for _, t := range s.Tables {
			for _, verb := range []string{"Create", "Get", "Update", "Delete"} {
				standard = append(standard, verb+t.Message)
			}
			// An irregular plural comes from the pattern, as in package resource.
			many := []string{t.Message + "s"}
			if parts := strings.Split(t.Pattern, "/"); len(parts) > 1 {
				c := parts[len(parts)-2]
				many = append(many, strings.ToUpper(c[:1])+c[1:])
			}
			for _, m := range many {
				standard = append(standard, "List"+m, "Watch"+m)
			}
		}
		methods := file.Services().Get(i).Methods()
		for j := range methods.Len() {
			if m := string(methods.Get(j).Name()); !slices.Contains(standard, m) {
				s.Own = append(s.Own, m)
			}
		}
	}
}
