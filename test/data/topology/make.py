#!/usr/bin/env python3
"""Writes the saved topologies of this folder, as `lstopo --of xml` writes those of real nodes (hwloc 2's format):

    test/data/topology/make.py

Sockets, NUMA nodes, cores, hardware threads as Linux numbers them, and GPUs at their PCI addresses; no caches but those
that NUMA nodes hang on, no other devices.
"""
import os

HERE = os.path.dirname(os.path.abspath(__file__))


def bits(members):
    value = sum(1 << i for i in members)
    words = []
    while value or not words:
        words.append("0x%08x" % (value & 0xFFFFFFFF))
        value >>= 32
    return ",".join(reversed(words))


class Writer:
    def __init__(self):
        self.lines, self.next_index = [], 1

    def object(self, depth, kind, cpus, nodes, attributes="", children=None, complete=None):
        sets = ""
        if cpus is not None:
            sets = ' cpuset="%s" complete_cpuset="%s"' % (bits(cpus), bits(cpus if complete is None else complete))
            sets += ' nodeset="%s" complete_nodeset="%s"' % (bits(nodes), bits(nodes))
            if kind == "Machine":
                sets += ' allowed_cpuset="%s" allowed_nodeset="%s"' % (bits(cpus), bits(nodes))
        head = "%s<object type=\"%s\"%s%s gp_index=\"%d\"" % ("  " * depth, kind, attributes, sets, self.next_index)
        self.next_index += 1
        if children is None:
            self.lines.append(head + "/>")
            return
        self.lines.append(head + ">")
        children()
        self.lines.append("  " * depth + "</object>")


def topology(name, sockets, nodes_a_socket, cores_a_node, threads, gpus, only=None):
    """gpus: {NUMA node: [PCI addresses]}. Linux numbers the first thread of every core, then the second.
    only: the cores that may be used, by their number on the machine (a cgroup's cpuset)."""
    all_cores = sockets * nodes_a_socket * cores_a_node
    usable = [c for c in range(all_cores) if only is None or c in only]

    def cpus_of(cores):
        return [c + t * all_cores for c in list(cores) for t in range(threads)]

    def all_of(node):
        return range(node * cores_a_node, (node + 1) * cores_a_node)

    def cores_of(node):
        return [c for c in all_of(node) if c in usable]

    writer = Writer()

    def write_node(node, depth):
        cores = cores_of(node)
        writer.object(depth, "NUMANode", cpus_of(cores), [node],
                      ' os_index="%d" local_memory="%d"' % (node, 64 << 30), lambda: None,
                      complete=cpus_of(all_of(node)))
        for core in cores:
            def write_threads(core=core):
                for cpu in cpus_of([core]):
                    writer.object(depth + 1, "PU", [cpu], [node], ' os_index="%d"' % cpu)
            writer.object(depth, "Core", cpus_of([core]), [node], ' os_index="%d"' % core, write_threads)
        for address in gpus.get(node, []):
            bus = address[5:7]
            writer.object(depth, "Bridge", None, None,
                          ' bridge_type="0-1" depth="0" bridge_pci="%s:[%s-%s]"' % (address[:4], bus, bus),
                          lambda: writer.object(depth + 1, "PCIDev", None, None,
                                                ' pci_busid="%s" pci_type="0302 [10de:2330] [10de:16c1] a1"'
                                                ' pci_link_speed="0.000000"' % address))

    def write_socket(socket):
        nodes = range(socket * nodes_a_socket, (socket + 1) * nodes_a_socket)
        if nodes_a_socket == 1:
            write_node(nodes[0], 3)
            return
        for node in nodes:
            writer.object(3, "L3Cache", cpus_of(cores_of(node)), [node],
                          ' cache_size="33554432" depth="3" cache_linesize="64" cache_associativity="16"'
                          ' cache_type="0"', lambda: write_node(node, 4))

    def write_machine():
        for socket in range(sockets):
            nodes = range(socket * nodes_a_socket, (socket + 1) * nodes_a_socket)
            cores = [c for n in nodes for c in cores_of(n)]
            writer.object(2, "Package", cpus_of(cores), nodes, ' os_index="%d"' % socket,
                          lambda: write_socket(socket), complete=cpus_of(c for n in nodes for c in all_of(n)))

    writer.object(1, "Machine", cpus_of(usable), range(sockets * nodes_a_socket), ' os_index="0"', write_machine,
                  complete=cpus_of(range(all_cores)))
    with open(os.path.join(HERE, name + ".xml"), "w") as file:
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n')
        file.write('<topology version="2.0">\n' + "\n".join(writer.lines) + "\n</topology>\n")


TWO = {0: ["0000:17:00.0", "0000:31:00.0", "0000:4b:00.0", "0000:5d:00.0"],
       1: ["0000:97:00.0", "0000:b1:00.0", "0000:cb:00.0", "0000:dd:00.0"]}
topology("laptop", 1, 1, 4, 2, {0: ["0000:01:00.0"]})
topology("one-socket", 1, 1, 12, 1, {})
topology("two-sockets", 2, 1, 16, 2, TWO)
topology("nps4", 2, 4, 4, 1, {node: ["0000:%02x:00.0" % (0x11 + 0x20 * node)] for node in range(8)})
# A cgroup's slices of two-sockets: six cores of both sockets; and four of the second one, with GPUs of the first.
topology("slice", 2, 1, 16, 2, {0: TWO[0][:1], 1: TWO[1][:1]}, only=[12, 13, 14, 15, 16, 17])
topology("far-slice", 2, 1, 16, 2, {0: TWO[0][:2]}, only=[28, 29, 30, 31])
