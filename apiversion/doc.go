// Package apiversion serves one version of an API by another one, so that both versions
// work fully on either side of a flip: the old version over the new data after it, and,
// with the same declarations the other way round, the new version over the old data.
//
// A Resource declares how one resource type looks in both versions: conversion of messages
// and a transform.Mapping of names, fields and values in each direction. There are two ways
// to make one: FromLens takes both from a lens, and Typed converts by a pair of Go functions
// on messages and maps the fields that both versions have. The package has no language of
// its own for how fields differ. A Table pairs the methods of two
// services: renamed, replaced, or discontinued. NewHandler then serves the old service's
// procedures, unary and server streaming, over Connect, gRPC and gRPC-Web, by calling the
// handler of the new service in process.
//
// What is translated: names and parents, resources, filters, orders, page tokens, update
// and read masks, responses, streamed messages, errors. Fields that both requests have
// under one name with one type are copied.
//
// Guarantees. What cannot be expressed is an InvalidArgument error that names the field in
// the terms of the version that the client speaks; nothing is left out or approximated. A
// page token goes on at the same place, whichever version made it. The context of a
// request reaches the inner handler with its values: what a write gate put there holds for
// the inner request. Tables are checked when they are made.
//
// An update reads what exists first, where the new service has a method for it, so that
// the old version's edit of a resource is made on the whole of it; the mask then names
// what the edit covers and nothing else. Where the new service has no update mask, what was
// read is written back with it: with an etag, that is conditional and made again when
// others have changed the resource; without one, their change may be lost.
//
// A method may be served by several requests (Method.Requests), which are written together or
// not at all.
//
// Around it: ReadOnly refuses the writes of a version that cannot be written yet, an
// Observer sees everything that is translated, Usage counts who still calls the old
// version, Range tells who calls a version that is not served which ones are, Once has an
// interceptor run once for each call of a client, however it is translated.
//
// The package does not know databases or switches, nor which version is active.
package apiversion
