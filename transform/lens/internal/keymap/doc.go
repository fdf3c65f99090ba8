// Package keymap maps the _ids of a lens's kind between two versions.
//
// A Form describes the _ids of one side: a Pattern of names, one variable of another type, or a
// document of such parts. Keys joins the forms of both sides by their variables, and a Way is Keys in
// one direction. Reading an _id gives the values of its variables as texts, and appending the values
// in the other form gives the other side's _id. A variable that only one side has is a constant, or
// a field of the other side's record.
//
// The mapping is one to one by construction: an _id has a form in one way or not at all, and a text
// belongs to one value of its type. So two records never get the same _id. An _id that the other
// side cannot have is an error, and the caller refuses the record.
//
// Way also maps what requests contain: names, prefixes of names for lists (Parent, Prefix), and
// literals. Disjoint reports whether an _id of one form can have another form as well.
//
// The package does not know operations, and does not parse lenses.
package keymap
