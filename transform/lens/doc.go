// Package lens makes transformers of YAML: a list of operations on fields, each of
// which can be undone, so that the reverse direction needs no second text; it is called the reverse.
//
//	lens: 1
//	kinds: {from: packages, to: packages}
//	key: {from: "packages/{name}", to: "regions/{region}/packages/{name}", with: {region: us-west2}}
//	operations:
//	  - rename: {from: section, to: category}
//	  - move: {from: homepage, to: links.homepage}
//	  - convert: {field: installed_size, from: int, to: long}
//	  - convert: {field: priority, table: {optional: normal, required: base}}
//	  - add: {field: schema, value: 2}
//	  - add: {field: state, default: new}
//	  - remove: {field: legacy, default: ""}
//	  - copy: {from: name, to: title}
//	  - wrap: {field: maintainer}
//	  - unwrap: {field: architectures}
//	  - split: {field: version, to: [epoch, upstream], separator: ":", rest: true}
//	  - join: {fields: [host, port], to: address, separator: ":"}
//	  - normalize: {field: email, steps: [trim, lower]}
//	  - splitList: {field: tags, separator: ",", tidy: true}
//	  - joinList: {field: keywords, separator: "; "}
//	  - each:
//	      field: depends
//	      match: name
//	      operations:
//	        - rename: {from: ver, to: version}
//	        - add: {field: optional, default: false}
//	  - each: {field: sizes, in: map, operations: [convert: {field: ., from: int, to: long}]}
//	  - compute:
//	      from: [price]
//	      to: [cents]
//	      up: {cents: int(math.round(price * 100.0))}
//	      down: {price: double(cents) / 100.0}
//	  - hook: {name: normalize, from: [raw], to: [text]}
//	  - reference: {field: source, kind: self}
//	  - fanOut: {field: releases, as: list, kind: releases, key: "{_key}/{id}", id: version, order: position, parent: package}
//	  - gather: {kind: ratings, field: rating, as: object, key: "{_key}/rating"}
//
// Operations apply in order on the way up, and undone in reverse order on the way down.
// Paths are dotted and name one value each: they do not lead through lists, but for
// those within an each.
//
//   - rename gives a field another name within its object and leaves it in its place.
//   - move takes a field from one object to another (the record itself is one too).
//     Objects that are missing are made, those left empty are removed.
//   - convert changes the type of a value, or the value by a table. Null and absence
//     stay. The types: string, int, long, double, decimal, bool, objectId, uuid, date, rfc3339
//     (a string), epoch (a long, seconds) and epochMillis (a long); and number, which is an int, long, double or
//     decimal, whichever its writer took. Those that are the same number are one, and each
//     side keeps the type that it has. With rounding, dates of one second are one epoch,
//     and keep their milliseconds.
//   - add puts a field into each new record whose parent object is there: with value, a
//     constant that only the lens decides on; with default, a field that the new
//     version's application owns afterwards.
//   - remove takes a field away from each old record. default is what the way down
//     writes into records that the old version never had; without it, nothing.
//   - copy is add with the value of another field as default.
//   - wrap makes a list of one of a value, and unwrap a value of such a list: one with
//     more items, or none, is an error. Null and absence stay.
//   - split takes a string apart, and join puts strings together. A string has just as
//     many parts as there are fields, which may be empty; with rest, the last part is
//     all that is left. A part that holds the separator, but for a rest, and parts of
//     which only some are there, are errors. No part is there where the string is not,
//     and all are null where it is.
//   - splitList makes a list of strings of a string, and joinList a string of such a list.
//     The empty string is the list without items. With tidy, blanks around items, and items
//     that are empty, mean nothing; else what would not come back is an error.
//   - normalize brings values that mean the same into one form: trim, lower, upper, nfc,
//     zero (of -0), emptyToAbsent, nullToAbsent, sort, deduplicate. Each side keeps its own
//     form as long as the normal forms are the same.
//   - each does operations in every item of a list or every value of a map; in is
//     which of the two, where a record must not have the other. "." is the item itself,
//     for convert, wrap, unwrap, splitList, joinList, normalize, compute, hook and each. Items that have no fields are
//     left alone by operations on fields. Operations that leave one side without a field
//     (add with default, remove, copy) must find the item that the other side holds: by
//     its name in a map, by the field that match names in a list. Two items of a list
//     with the same one, or an item without it, are errors.
//   - compute makes fields of others by expressions in CEL, one for each field of the
//     other side. They call a field by its path, and an item "item". A field that is not
//     there is null, and null (or absent, where CEL asks for one type) makes no field.
//     Whole numbers become int where they fit, or long(x); decimal(x), objectId(x) and
//     string(x) make those. Nothing is computed where all fields are absent, or null.
//     There are no clocks and no time zones, and an expression that takes more than
//     100,000 steps is an error. An object that an expression makes is the same with its
//     fields in any order, unless fieldOrder is exact.
//   - hook does the same with a pair of Go functions that the program gives to Parse.
//
// # Keys and several kinds
//
// The file itself may say which kinds it is for, and how their keys change:
//
//   - key changes the _id from one form to another: a Pattern, whose _ids are strings; one
//     variable of another type, {id:objectId}, whose _ids are of that type; or the fields
//     of a document, each with a pattern, {tenant: "{tenant}", id: "{id:objectId}"}. A
//     variable that only one of them has is a constant, so that keys follow from each other
//     alone and records with another value are refused; or {field: path} of the other
//     side's record, which goes into the key and comes back out of it (keep: true: the
//     record has it in both versions; type: its type there, where it is another than in the
//     key). with is for the variables of to, without for those of from.
//   - reference lets a field, or with list its items, follow the key of another kind: of
//     this lens (self), of another lens of the Set, or of a service in imports, which names
//     lens files relative to this one. A value that is no key of the kind is an error, but
//     with optional stays, unless the reverse would take it for one.
//   - fanOut makes records of another new kind of the entries of a list, of a map or of an
//     object; gather makes such a field of the records of another old kind. They are each
//     other's reverse. operations work on the entries, from old to new.
//
// A variable carries the one text of a value between the types that it has on both sides:
// the hexadecimal digits of an objectId or a uuid, the decimal ones of an int, long, double
// or number (a whole one of any type, which the record keeps in an _id; made anew it is int
// where that fits, and else double, as JavaScript writes them), the time of a date. A text that no value has, and a value that is of another type than is
// declared, are errors of the record. Where a key is all that is known, numbers of all
// types that are equal are one. any is carried as it is, and has no text.
//
// The key of a child is such a form over {_key}, the parent's _id on the children's side,
// or the variables of its key, {index}, the place in a list, {id}, and {item.<field>}.
// Where it is a text that begins with the parent's name, or follows from it as a whole, the
// group of a child follows from its key. Otherwise parent, the child's field for the
// parent's key, must be there, and groups go by content. What stands alone keeps its type,
// also as the field of a document. The _id of an item goes into the key and comes back out
// of it. id is the field that tells the items of a list apart, or the child's field for the
// name of a map's entry, if the key does not hold it; value the child's field for entries
// that have no fields.
//
// A list keeps its order by the child's field order, in which numbers may be left out, by
// {index}, in which none may, or else it must be sorted by id. Nulls, and lists and maps
// without entries, stay in the record, so that they are not taken for absent ones, and go
// away when there are entries. With empty: present an empty list or map means the same as
// none: each record keeps what it has, and a new one gets the empty one. Entries that would be the same child, children without
// their parent, and children that do not hold what their key implies are errors.
//
// # Guarantees
//
// Down(Up(x)) is x but for the order of fields that were moved. A value that would not
// come back the same, to the bit, is an error that names operation, field and reason
// (RecordError); so is a record that holds, on one side, a field whose name the lens uses
// on the other. Such a record is parked, never guessed at. Fields that one side cannot
// hold survive there as the complement (Lost lists them): a lens with add-default needs
// it on the way up, one with remove on the way down. A record that was not changed comes
// out over its complement as the same bytes. What no operation names keeps its bytes and
// is not even decoded.
//
// UpMapping and DownMapping turn requests of one version into such of the other, by the
// same operations; what they cannot express they refuse. Schema is the format as a JSON
// Schema.
//
// The package does not read collections, and it does not carry indexes over itself: it
// returns how they are called on the other side (MapIndex) and whether a validator names
// fields that it changes (TouchesValidator).
package lens
