"""Chat templates of our own making, one for each construct that templates of known families use."""

CONTENT = "{% macro text(content) %}{% if content is string %}{{ content }}{% else %}" \
    "{% for part in content or [] %}{{ part.text | default('(' ~ part.type ~ ')') }}{% endfor %}{% endif %}" \
    "{% endmacro %}"
"""Writes a content that is a text, or parts, or missing."""

PROMPT = "{% if add_generation_prompt %}answer:{% endif %}"

TODAY = """Today is {{ strftime_now('%d %B %Y') }}, {% set now = strftime_now("%A %H") %}{{ now }} h."""

TEMPLATES = {
    "loop": """{% for message in messages %}<{{ message['role'] }}>{{ message['content'] }}</{{ message.role }}>
{% endfor %}""" + PROMPT,

    "loop variables": """
{% for message in messages %}
{{ loop.index0 }} {{ loop.index }}/{{ loop.length }} {{ loop.revindex }} {{ loop.cycle('odd', 'even') }}
{%- if loop.first %} first{% endif %}{% if loop.last %} last{% endif %}
{%- if not loop.first %} after {{ loop.previtem.role }}{% endif %}
{%- if not loop.last %} before {{ loop.nextitem.role }}{% endif %}
{%- if loop.changed(message.role) %} changed{% endif %}

{% endfor %}""" + PROMPT,

    "conditions": """{% for m in messages %}{% if m.role == 'system' %}# {{ m.content }}
{% elif m.role == 'user' and loop.index0 > 0 %}> {{ m.content }}
{% elif m.role == 'user' or m['role'] == 'tool' %}>> {{ m.content }}
{% elif not m.content %}(nothing)
{% else %}{{ m.content }}{{ eos_token }}
{% endif %}{% endfor %}""" + PROMPT,

    "inline if": """{{ bos_token }}{% for m in messages %}{{ '\\n' if not loop.first }}
{{- ('you' if m.role == 'user' else 'me' if m.role == 'assistant' else m.role) + ': ' }}{{ m.content }}
{%- endfor %}{{ '\\nme: ' if add_generation_prompt else '' }}""",

    "namespace": """{% set ns = namespace(system='none', turns=0, seen=false) %}
{% for m in messages %}{% if m.role == 'system' %}{% set ns.system = m.content %}{% set ns.seen = true %}
{% else %}{% set ns.turns = ns.turns + 1 %}{% endif %}{% endfor %}
system={{ ns.system }} seen={{ ns.seen }} turns={{ ns.turns }}
{% for m in messages if m.role != 'system' %}[{{ m.role }}]{{ m.content }}{% endfor %}""" + PROMPT,

    "set does not leave a loop": """{% set found = 'no' %}{% for m in messages %}{% set found = m.role %}
{{ found }};{% endfor %}{{ found }}""",

    "macros": """{% macro turn(role, content, end='|end|') -%}
|{{ role }}|{{ content }}{{ end }}
{%- endmacro %}{% macro wrap(tag) %}<{{ tag }}>{{ caller() }}</{{ tag }}>{% endmacro %}
{% for m in messages %}{{ turn(m.role, m.content, end='|stop|' if loop.last else '|end|') }}
{% endfor %}{% call wrap('next') %}{{ turn('assistant', '', end='') }}{% endcall %}""",

    "recursive macro": """{% macro type(schema) %}{% if schema.type == 'array' %}list[{{ type(schema['items']) }}]
{%- elif schema.type == 'object' %}{ {%- for key, value in schema.properties.items() %}{{ key }}
{%- if key not in schema.required %}?{% endif %}: {{ type(value) }}{{ ', ' if not loop.last }}{% endfor %} }
{%- elif schema.enum is defined %}{{ schema.enum | map('tojson') | join(' | ') }}
{%- else %}{{ schema.type }}{% endif %}{% endmacro %}
{% for tool in tools or [] %}{{ tool.function.name }}{{ type(tool.function.parameters) }}
{% endfor %}{{ messages[-1].content }}""",

    "set block": """{% set prompt %}
{% for m in messages %}{{ m.role }}={{ m.content }} {% endfor %}
{% endset %}{% set loud | upper %}{{ prompt }}{% endset %}{{ prompt | length }} {{ prompt | trim }} {{ loud }}""",

    "filter block": """{% filter upper | replace('\\n', ' ') %}{% for m in messages %}{{ m.role }}
{% endfor %}{% endfilter %}""",

    "filters on text": """{% for m in messages %}{{ m.role | capitalize }}/{{ m.role | title }}
/{{ m.role | upper | lower }}
{{ m.name | default('nobody') }} {{ m.content | string | trim | length }} {{ m.content | string | wordcount }}
{{ m.content | string | replace(' ', '_') | truncate(8) }}|{{ m.content | string | indent(2) }}|
{{ '%s!' | format(m.role) }}
{{ '<&>' | e }} {{ '<&>' | safe }} {{ '7' | int + 1 }} {{ '1.5' | float }} {{ m.role | first }}{{ m.role | last }}
{% endfor %}""",

    "filters on lists": """{{ messages | map(attribute='role') | join(', ') }}
{{ messages | selectattr('role', 'equalto', 'user') | list | length }} from the user,
{{ messages | rejectattr('role', 'in', ['user', 'assistant']) | map(attribute='role') | list }}
{{ messages | map(attribute='role') | unique | sort(reverse=true) | list }}
{{ messages | map(attribute='role') | map('upper') | reject('equalto', 'SYSTEM') | list }}
{{ messages | selectattr('content', 'string') | map(attribute='content') | map('length') | sum }}
{% for role, of_role in messages | groupby('role') %}{{ role }}:{{ of_role | length }} {% endfor %}
{{ (messages | first).role }} {{ (messages | last).role }} {{ messages | batch(2) | list | length }}
{% for key, value in {'b': 1, 'a': [2]} | dictsort %}{{ key }}{{ value }}{% endfor %}
{% for key, value in {'x': none, 'y': 0} | items %}{{ key }}={{ value }} {% endfor %}""",

    "tojson": """{{ messages | tojson }}{{ messages[0].content | tojson }}
{{ tools | tojson(indent=2) }}{{ {'b': '<é>', 'a': 1.5} | tojson(sort_keys=true, separators=(',', ':')) }}
{{ messages[-1] | tojson(ensure_ascii=true) }}{{ [none, true, 1e3] | tojson }}""",

    "tools": """{% if tools is not none and tools | length > 0 %}{{ '<tools>\\n' }}
{%- for tool in tools %}{{ tool.function.name }}: {{ tool.function.description }}
{% for name, schema in tool.function.parameters.properties.items() %}
  - {{ name }} ({{ schema.type }}{{ ', needed' if name in tool.function.parameters.required }})
{% endfor %}{{ tool | tojson(indent=4) }}
{% endfor %}</tools>
{% endif %}{% for m in messages %}{{ m.role }}: {{ m.content }}
{% endfor %}""" + PROMPT,

    "tool calls": """{% for m in messages %}{% if m.role == 'assistant' and m.tool_calls is defined %}
{% for call in m.tool_calls %}{% set call = call.function if call.function else call %}
call {{ call.name }}({% for key, value in call.arguments.items() %}{{ key }}={{ value | tojson }}
{%- if not loop.last %}, {% endif %}{% endfor %})
{% endfor %}{% elif m.role == 'tool' %}result of {{ m.tool_call_id }}: {{ m.content }}
{% else %}{{ m.role }}: {{ m.content }}
{% endif %}{% endfor %}""" + PROMPT,

    "turns of tools are grouped": """{% for m in messages %}{% if m.role == 'tool' %}
{% if loop.first or messages[loop.index0 - 1].role != 'tool' %}<results>{% endif %}
<result>{{ m.content }}</result>{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}</results>{% endif %}
{% else %}<{{ m.role }}>{{ m.content }}{% endif %}{% endfor %}""",

    "documents": """{% if documents %}{% for document in documents %}
[{{ loop.index }}] {{ document['title'] }}: {{ document.text | truncate(12, true, '..', 0) }}
{% endfor %}{% else %}no documents{% endif %}
{% for m in messages %}{{ m.content }}{% endfor %}""",

    "system message": """{% if messages[0].role == 'system' %}{% set system = messages[0].content %}
{% set messages = messages[1:] %}{% else %}{% set system = 'Be brief.' %}{% endif %}
{% for m in messages %}{% if loop.first %}<<{{ system }}>> {% endif %}{{ m.role }}: {{ m.content }} {% endfor %}""",

    "alternation": CONTENT + """{{ bos_token }}
{% set rest = messages[1:] if messages[0].role == 'system' else messages %}
{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('turns must alternate user/assistant, but turn ' ~ loop.index ~ ' is ' ~ m.role) }}{% endif %}
{{ m.role }}: {{ text(m.content) }}{% endfor %}""" + PROMPT,

    "unknown roles are refused": """{% for m in messages %}{% if m.role not in ['user', 'assistant', 'system'] %}
{{ raise_exception('no role ' + m.role + '!') }}{% endif %}{{ m.role }} {% endfor %}""",

    "strftime_now is asked for": """{% if strftime_now is defined %}{% set form = '%%' %}{% endif %}
{{ date_string if date_string is defined else strftime_now(form) }} {{ messages[0].role }}""",

    "whitespace control": """
{#- a comment -#}
    {%- for m in messages -%}
        {{- m.role }}   {{ m.content -}}
        {%+ if true %} kept {% endif +%}
    {%- endfor -%}

    {% if add_generation_prompt %}
    indented
    {% endif %}
  {{ 'x' }}
  {{- 'y' }}
tail
""",

    "raw": """{% raw %}{{ not a variable }} {% nor a statement %}{% endraw %}{# nothing #}{{ messages | length }}
""",

    "text methods": """{% for m in messages %}{% set text = m.content | string %}
{{ text.split(' ')[0] }}|{{ text.split() | length }}|{{ text.rsplit(' ', 1)[-1] }}|{{ text.strip() }}
{{ text.lstrip('H') }}|
{{ text.startswith('H') }} {{ text.endswith(' ') }} {{ text.replace('e', '3') }} {{ text.upper() }} {{ text.find('o') }}
{{ m.role.title() }} {{ '{}-{name}'.format(1, name=m.role) }} {{ '%05.1f|%s' % (2.25, m.role) }}
{{ 'ab'.join(['1', '2']) }}
{{ text.partition('th')[2] }} {{ text.splitlines() | length }} {{ text.isdigit() }} {{ text.count('e') }}
{{ '7'.zfill(3) }}
{% endfor %}""",

    "slices": """{% for m in messages[::-1] %}{{ m.role[:2] }}{{ m.role[-1] }}{{ m.role[::-1] }} {% endfor %}
{{ messages[1:] | length }} {{ messages[:-1] | length }} {{ (messages | list)[-1].role }} {{ messages[99:] }}
{% for i in range(messages | length - 1, -1, -1) %}{{ i }}{{ messages[i].role }} {% endfor %}""",

    "reasoning is cut off": """{% for m in messages %}{% set content = m.content | string %}
{% if m.role == 'assistant' and '</think>' in content %}
{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
{% set content = content.split('</think>')[-1].lstrip('\\n') %}
{{ '(' ~ reasoning ~ ')' if loop.last else '' }}{% endif %}
{% if m.reasoning_content is defined %}[{{ m.reasoning_content }}|{{ m.thinking }}]{% endif %}
{{ m.role }}: {{ content }}
{% endfor %}{% if enable_thinking is defined and enable_thinking is false %}<think></think>{% endif %}""",

    "last query": """{% set ns = namespace(open=true, last=messages | length - 1) %}{% for m in messages[::-1] %}
{% set index = messages | length - 1 - loop.index0 %}{% if ns.open and m.role == 'user' %}{% set ns.open = false %}
{% set ns.last = index %}{% endif %}{% endfor %}{% for m in messages %}
{{ '*' if loop.index0 >= ns.last else '-' }}{{ m.content }}
{% endfor %}""",

    "parts": CONTENT + """{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}
{% elif m.content is iterable and m.content is not mapping %}{% for part in m.content %}
{% if part.type == 'image' or 'image_url' in part or part['type'] == 'image_url' %}<image>
{%- elif part.type == 'text' %}{{ part['text'] | trim }}{% endif %}{% endfor %}
{% endif %}({{ text(m.content) }}){% endfor %}""" + PROMPT,

    "generation block": """{% for m in messages %}{% if m.role == 'assistant' %}
{% set before = 'A' %}{% generation %}{% set inside = before ~ loop.index %}{{ inside }}: {{ m.content }}{{ eos_token }}
{%- endgeneration %}{{ inside }}
{% else %}
{{ m.role }}: {{ m.content }}
{% endif %}{% endfor %}{%- if add_generation_prompt -%} go {%- endif -%}""",

    "break and continue": """{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}
{% if loop.index > 3 %}...{% break %}{% endif %}{{ m.role }}: {{ m.content }}
{% else %}none
{% endfor %}""",

    "loop with else and filter": """{% for m in messages if m.role == 'tool' and m.content %}
{{ loop.index }}{{ m.content }}
{% else %}no tools{% endfor %}{% for key in {} %}{{ key }}{% else %}!{% endfor %}""",

    "tests": """{% for m in messages %}{{ m.content is defined }} {{ m.nothing is undefined }} {{ m.content is none }}
{{ m.content is string }} {{ m is mapping }} {{ m.content is iterable }} {{ m.content is sequence }}
{{ tools is sameas none }}
{{ loop.index is odd }} {{ loop.index is even }} {{ loop.index is divisibleby 3 }} {{ m.role is eq 'user' }}
{{ 1 is number }}
{{ 1.5 is float }} {{ 1 is integer }} {{ true is boolean }} {{ m.role is lower }} {{ m.role is in ['user'] }}
{{ add_generation_prompt is true }} {{ m.role is not sameas false }} {{ 'upper' is filter }} {{ namespace is callable }}
{% endfor %}""",

    "operators": """{{ 'a' ~ 1 ~ none ~ true ~ 2.0 }} {{ 7 // 2 }} {{ 7 / 2 }} {{ 7 % 4 }} {{ 2 ** 8 }} {{ -3 + 1 }}
{{ [1] + [2, 3] }} {{ 'ab' * 2 }} {{ (1, 2) }} {{ 1 < 2 <= 2 != 3 }} {{ 'user' in messages[0].role }} {{ not [] }}
{{ 'x' not in messages[0] }} {{ 'role' in messages[0] }} {{ none or 'or' }} {{ messages[0].content and 'and' }}""",

    "literals": """{% set tags = {'user': ('<u>', '</u>'), 'assistant': ['<a>', '</a>']} %}{% set a, b = 1, 'two' %}
{% for m in messages %}{% set tag = tags.get(m.role, ('', '')) %}{{ tag[0] ~ m.content ~ tag[1] }}
{% endfor %}{{ tags.keys() | list }} {{ dict(x=1, **{'y': 2}) }} {{ a }}{{ b }} {{ dict([('k', 'v')]).items() | list }}
{{ tags['nobody'] is defined }} {{ tags.user[0] }} {{ dict.fromkeys(['p']) }} {{ "it's" }} {{ 'tab\\there' }}""",

    "special tokens": """{{ bos_token }}{{ eos_token + pad_token }}{{ sep_token }}{{ image_token }}
{% for m in messages %}{{ m.content }}{{ eos_token if m.role == 'assistant' }}{% endfor %}""",

    "variables of the client": """{% if not date_string is defined %}{% set date_string = 'today' %}{% endif %}
{{ date_string }}
{{ 'thinks' if enable_thinking | default(true) else 'answers' }} {{ (style or {}).tone | default('dry', true) }}
{{ missing }}
{% for m in messages %}{{ m.content }}{% endfor %}""",

    "recursive loop": """{% for item in [[1, [2]], [3]] recursive %}{% if item is iterable %}({{ loop(item) }})
{%- else %}{{ item }}@{{ loop.depth }}{% endif %}{% endfor %}{{ messages | length }}""",

    "joiner and cycler": """{% set comma = joiner(', ') %}{% set colour = cycler('red', 'green') %}
{% for m in messages %}{{ comma() }}{{ m.role }} {{ colour.next() }}{% endfor %}""",

    "with": """{% with first = messages[0], n = messages | length %}{{ first.role }} of {{ n }}
{% endwith %}{{ first }}""",
}

FAILING = {
    "lists can't be changed": "{% set x = [] %}{% set _ = x.append(messages[0]) %}{{ x }}",
    "messages can't be changed": "{% set _ = messages[0].update({'role': 'x'}) %}{{ messages[0].role }}",
    "messages can't be taken": "{{ messages.pop() }}",
    "no insides of Python": "{{ ''.__class__.__mro__ }}",
    "no insides of a format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "no insides of a function": "{{ raise_exception.__globals__.keys() }}",
    "no other files": "{% include 'other.jinja' %}",
    "too wide a range": "{% for i in range(1000000) %}{% endfor %}",
    "attribute of what is missing": "{{ nothing.at.all }}",
    "division by zero": "{{ 1 / 0 }}",
    "text and number": "{{ 'a' + 1 }}",
    "macro without end": "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
    "no JSON": "{{ nothing | tojson }}",
    "refused": "{{ raise_exception('<never> & \"nowhere\"') }}",
    "syntax": "{% if messages %}",
    "unknown statement": "{% do messages %}",
    "unknown filter": "{{ messages | shout }}",
}
