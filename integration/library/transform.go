package library

import (
	"errors"
	"strings"

	"dbcontroller.dev"
	"dbcontroller.dev/apiversion/protodoc"
	v1 "dbcontroller.dev/gen/library/v1"
	v2 "dbcontroller.dev/gen/library/v2"
	"dbcontroller.dev/transform/typed"
)

type (
	oldLibrary struct {
		Library *v1.Library `typed:"kind=libraries,key=libraries/{group}"`
	}
	newBranch struct {
		Branch *v2.Branch `typed:"kind=branches,key=branches/{group}"`
	}
	oldBook struct {
		Book   *v1.Book   `typed:"kind=books,key=books/{group}"`
		Copies *v1.Copies `typed:"kind=copies,key=books/{group}/copies"`
	}
	newBook struct {
		Book *v2.Book `typed:"kind=books,key=books/{group}"`
	}
)

// branches renames libraries to branches.
var branches = typed.Group[oldLibrary, newBranch]{
	Name: "branches", Revision: "1", CodecOf: protodoc.Kinds, KeepRest: "_rest",
	Up: func(old oldLibrary, have newBranch) (newBranch, error) {
		l := old.Library
		return newBranch{&v2.Branch{
			Name: upName(l.GetName()), DisplayName: l.GetTitle(), City: l.GetCity(), Revision: l.GetRevision(), Phone: have.Branch.GetPhone(),
		}}, nil
	},
	Down: func(now newBranch, _ oldLibrary) (oldLibrary, error) {
		b := now.Branch
		return oldLibrary{&v1.Library{Name: downName(b.GetName()), Title: b.GetDisplayName(), City: b.GetCity(), Revision: b.GetRevision()}}, nil
	},
}

// books merges a book and its copies into one record, and refers to the library by its new name.
var books = typed.Group[oldBook, newBook]{
	Name: "books", Revision: "1", CodecOf: protodoc.Kinds, KeepRest: "_rest",
	Up: func(old oldBook, have newBook) (newBook, error) {
		// Copies without their book cannot become a v2 record, so the group is parked.
		if old.Book == nil {
			return newBook{}, errors.New("copies of no book")
		}
		return newBook{&v2.Book{
			Name: old.Book.GetName(), Title: old.Book.GetTitle(), Branch: upName(old.Book.GetLibrary()), Revision: old.Book.GetRevision(),
			Copies: old.Copies.GetTotal(), Lent: old.Copies.GetLent(), Shelf: have.Book.GetShelf(),
		}}, nil
	},
	Down: func(now newBook, _ oldBook) (oldBook, error) {
		b := now.Book
		return oldBook{
			Book:   &v1.Book{Name: b.GetName(), Title: b.GetTitle(), Library: downName(b.GetBranch()), Revision: b.GetRevision()},
			Copies: &v1.Copies{Total: b.GetCopies(), Lent: b.GetLent()},
		}, nil
	},
}

func upName(library string) string  { return strings.Replace(library, "libraries/", "branches/", 1) }
func downName(branch string) string { return strings.Replace(branch, "branches/", "libraries/", 1) }

// transformers returns the transformers between both versions. An error in them fails each test.
func transformers() dbcontroller.Transformers {
	one, err := branches.Spec()
	two, errTwo := books.Spec()
	if err := errors.Join(err, errTwo); err != nil {
		panic(err)
	}
	return dbcontroller.Transformers{one, two}
}
